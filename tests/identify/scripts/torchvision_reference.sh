#!/usr/bin/env bash
#SBATCH --gres=gpu:a100:8
singularity exec --nv --bind /data:/data pytorch.sif \
    torchrun --nproc_per_node=8 references/classification/train.py \
    --data-path /data/imagenet --model efficientnet_v2_s --batch-size 128 --epochs 600 \
    --lr 0.5 --lr-scheduler cosineannealinglr --auto-augment ta_wide --train-crop-size 300 --amp
