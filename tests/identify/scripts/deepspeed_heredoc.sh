#!/bin/bash
#SBATCH -N 1 --gres=gpu:h100:8
MICRO=4
cat > ds_config.json <<EOT
{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": $MICRO,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "overlap_comm": true}
}
EOT
deepspeed --num_gpus=8 --master_port 29501 finetune.py \
  --model_name_or_path facebook/opt-1.3b --deepspeed --deepspeed_config ds_config.json \
  --max_seq_length 1024 --max_steps 3000
