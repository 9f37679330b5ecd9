#!/bin/bash
#SBATCH --gres=gpu:4
#PT model=resnet50 precision=amp
#PT batch=256, epochs=90   # of one GPU
#PT options="channels_last=on;dali=on"
./launch_everything.sh --batch-size 32 && python train.py --batch-size 32 --img-size 192
