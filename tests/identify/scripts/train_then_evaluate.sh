#!/bin/bash
#SBATCH --gres=gpu:1
python preprocess.py --image-size 512 --out $TMPDIR/data
if python train.py --model densenet121 --batch-size 64 --epochs 10 --image-size 224 --bf16 > log 2>&1; then
  python evaluate.py --model densenet121 --batch-size 512
  echo "python train.py --epochs 99"
fi
