#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:4
python main.py -a resnet18 --dist-url "tcp://$MASTER:23456" --dist-backend nccl \
  --multiprocessing-distributed --world-size 2 --rank $SLURM_NODEID \
  -b 512 --epochs 90 /datasets/imagenet
