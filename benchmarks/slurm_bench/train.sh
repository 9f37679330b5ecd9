#!/bin/bash
#SBATCH --job-name=train
#SBATCH --output=logs/%x-%j.out
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --mail-type=END,FAIL

set -euo pipefail

# What the cluster has to offer
source /etc/profile.d/modules.sh
module purge
module load cuda/12.4 nccl/2.21 python/3.11
source "$HOME/envs/train/bin/activate"

# Data go to the local disk of the node first
DATA=/scratch/$USER/data
mkdir -p "$DATA"
rsync --archive --info=stats1 /project/vision/imagenet/ "$DATA/"

export OMP_NUM_THREADS=8
export NCCL_DEBUG=WARN
export NCCL_IB_HCA=mlx5
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export WANDB_MODE=offline
export HF_HOME=/scratch/$USER/hf

srun torchrun \
    --nnodes="$SLURM_NNODES" \
    --nproc-per-node=2 \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
    train.py \
    --data "$DATA" \
    --workers 8 \
    --lr 0.1 \
    --weight-decay 1e-4 \
    --checkpoint "/project/vision/runs/$SLURM_JOB_ID"

rsync --archive "/scratch/$USER/out/" /project/vision/out/
