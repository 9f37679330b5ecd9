#!/bin/bash
#SBATCH -n 64
module purge && module load gromacs
gmx_mpi mdrun -s topol.tpr -ntomp 4 -batch 5 --model spce
mpirun ./ocean --steps 5000 --model global --precision 16
rsync -a out/ $HOME/train.py
