#!/bin/bash
#SBATCH --gres=gpu:8
PORT=29500 bash tools/dist_train.sh configs/faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py 8 --amp \
  --cfg-options train_dataloader.batch_size=4
