#!/bin/bash
#SBATCH --gpus=2
EXP=${1:-base}
python src/train.py experiment=$EXP trainer=ddp trainer.devices=2 trainer.max_epochs=20 \
  +trainer.precision=bf16-mixed data.batch_size=32 model.name=convnext_tiny data.image_size=224 seed=1
