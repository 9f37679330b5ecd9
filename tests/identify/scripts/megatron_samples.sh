#!/bin/bash
#SBATCH -N 1
GPT_ARGS="--num-layers 12 --hidden-size 768 --num-attention-heads 12 \
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 8 --global-batch-size 256 \
  --train-samples 1000000 --fp16 --fp8-format hybrid --swiglu"
python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py $GPT_ARGS --save $CKPT
