#!/bin/bash
#SBATCH -N1 --gpus 8 --container-image=nvcr.io/nvidia/pytorch:21.03-py3
srun --container-mounts=/data:/data python ./multiproc.py --nproc_per_node 8 ./main.py \
  --arch resnet50 -b 256 --data-backend dali-gpu --static-loss-scale 128 --amp \
  --lr 2.048 --mom 0.875 --epochs 90 --label-smoothing 0.1 --workspace /out /data/imagenet
