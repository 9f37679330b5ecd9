#!/bin/bash
#SBATCH --gres=gpu:8
mpi_command=" -m torch.distributed.launch --nproc_per_node=8"
CMD="python $mpi_command run_squad.py "
CMD+="--init_checkpoint=/ckpt/bert_large.pt "
CMD+="--do_train --train_file=/data/train-v1.1.json "
CMD+="--train_batch_size=32 --gradient_accumulation_steps=4 "
CMD+="--bert_model=bert-large-uncased --max_seq_length=384 --num_train_epochs=2.0 "
CMD+="--max_steps=-1 --fp16"
$CMD |& tee squad.log
