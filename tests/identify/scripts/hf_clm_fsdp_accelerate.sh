#!/bin/bash
#SBATCH -N 2
#SBATCH --gpus-per-node=8
set -euo pipefail
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export LAUNCHER="accelerate launch --num_processes 16 --num_machines $SLURM_NNODES \
    --mixed_precision bf16 --main_process_ip $HEAD --machine_rank \$SLURM_PROCID"
srun bash -c "$LAUNCHER run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf --block_size 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --max_steps 2000 --num_train_epochs 3 --fsdp 'full_shard auto_wrap' --gradient_checkpointing --attn_implementation flash_attention_2 --train_file data.jsonl"
