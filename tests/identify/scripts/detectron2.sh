#!/bin/bash
#SBATCH --gres=gpu:8
python tools/train_net.py --num-gpus 8 \
  --config-file configs/COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml \
  SOLVER.IMS_PER_BATCH 16 SOLVER.MAX_ITER 90000 SOLVER.AMP.ENABLED True OUTPUT_DIR out
