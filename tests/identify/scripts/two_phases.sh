#!/bin/bash
#SBATCH --gres=gpu:8
torchrun --nproc_per_node 8 train.py --model bert-base-uncased --seq-len 128 --batch-size 64 --max-steps 9000 --bf16
torchrun --nproc_per_node 8 train.py --model bert-base-uncased --seq-len 512 --batch-size 16 --max-steps 1000 --bf16
