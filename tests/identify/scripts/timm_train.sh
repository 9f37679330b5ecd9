#!/bin/bash -l
#SBATCH -J timm
#SBATCH -p gpu
cd $HOME/pytorch-image-models
srun --ntasks-per-node=1 torchrun --nproc_per_node=4 train.py /data/imagenet \
  --model vit_base_patch16_224.augreg_in21k -b 128 --epochs 300 --opt adamw --lr 5e-4 \
  --amp --amp-dtype bfloat16 --input-size 3 224 224 --channels-last --grad-accum-steps 2 \
  --model-ema --mixup .8 --cutmix 1.0 --aa rand-m9-mstd0.5 --warmup-epochs 5
