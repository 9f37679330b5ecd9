#!/bin/bash
#SBATCH --job-name=mlm
#SBATCH --nodes=1
#SBATCH --gres=gpu:8
module load cuda/12.1
source ~/venvs/hf/bin/activate
export HF_HOME=$SCRATCH/hf
MODEL=bert-large-uncased

torchrun --nproc_per_node=8 run_mlm.py \
    --model_name_or_path $MODEL \
    --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
    --do_train --do_eval \
    --per_device_train_batch_size 16 \
    --gradient_accumulation_steps 2 \
    --num_train_epochs 3 \
    --max_seq_length 512 \
    --fp16 True \
    --optim adamw_torch_fused \
    --output_dir $SCRATCH/out/$SLURM_JOB_ID   # checkpoints
