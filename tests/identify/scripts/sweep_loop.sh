#!/bin/bash
#SBATCH --array=0-3
LRS=(0.1 0.01 0.001 0.0001)
for seed in 1 2 3; do
  srun python train.py --arch vgg16 --batch-size 64 --epochs 30 --amp --lr ${LRS[$SLURM_ARRAY_TASK_ID]} --seed $seed
done
