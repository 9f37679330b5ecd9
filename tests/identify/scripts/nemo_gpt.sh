#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=8
srun python -u examples/nlp/language_modeling/megatron_gpt_pretraining.py \
  --config-path=conf --config-name=megatron_gpt_config \
  trainer.devices=8 trainer.num_nodes=2 trainer.max_steps=100000 trainer.precision=bf16-mixed \
  ++model.micro_batch_size=2 model.global_batch_size=256 model.encoder_seq_length=2048 \
  model.num_layers=24 model.hidden_size=1024 model.num_attention_heads=16 \
  model.tensor_model_parallel_size=2
