#!/bin/bash
#SBATCH --gres=gpu:1
BS=32
if [[ "$BIG" == yes ]]; then
  BS=128
fi
EPOCHS=$(cat epochs.txt)
python train.py --model resnet50 --batch-size $BS --epochs ${EPOCHS} --seq-len "$(( 2 * 64 ))" --precision 16
