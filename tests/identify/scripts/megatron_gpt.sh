#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8 --exclusive
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $SLURM_NNODES
)
GPT_MODEL_ARGS=(
    --num-layers 24
    --hidden-size 2048      # 1.3B
    --num-attention-heads 16
    --seq-length 2048
    --max-position-embeddings 2048
)
TRAINING_ARGS=(
    --micro-batch-size 4
    --global-batch-size 512
    --train-iters 5000
    --bf16
    --use-distributed-optimizer
    --recompute-activations
)
PARALLEL_ARGS=(
	--tensor-model-parallel-size 4
	--pipeline-model-parallel-size 2
)
srun torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    "${TRAINING_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}"
