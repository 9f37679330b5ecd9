#!/bin/bash
#SBATCH --gres=gpu:4 --ntasks-per-node=4
conda run -n pl --no-capture-output srun python main.py fit \
  --trainer.accelerator gpu --trainer.devices 4 --trainer.strategy ddp \
  --trainer.precision 16-mixed --trainer.max_epochs 50 --trainer.accumulate_grad_batches 2 \
  --model.name resnet101 --data.init_args.batch_size 64
