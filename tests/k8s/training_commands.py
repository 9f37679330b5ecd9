"""Fine-tuning and pre-training commands of today's stacks, as pods run them, none annotated.

Written for this test after the documented options of each project; no project's text is copied.
"""

from __future__ import annotations

HF = "--model_name_or_path"
# Command -> GPUs of the pod.
COMMANDS: dict[str, int] = {
    # Transformers' example scripts
    f"python run_clm.py {HF} gpt2 --dataset_name wikitext --do_train --output_dir /out": 1,
    f"python run_clm.py {HF} meta-llama/Llama-2-7b-hf --per_device_train_batch_size 4 --bf16 "
    "--gradient_checkpointing --do_train": 1,
    f"torchrun --nproc_per_node 8 run_clm.py {HF} mistralai/Mistral-7B-v0.1 --bf16 --fsdp "
    "full_shard --per_device_train_batch_size 2 --block_size 4096": 8,
    f"python run_mlm.py {HF} bert-base-uncased --per_device_train_batch_size 32 --fp16": 1,
    f"python run_mlm.py {HF} roberta-large --max_steps 10000 --fp16": 2,
    f"python run_glue.py {HF} bert-base-cased --task_name mrpc --max_seq_length 128": 1,
    f"python run_glue.py {HF} microsoft/deberta-v3-base --task_name mnli --fp16 "
    "--per_device_train_batch_size 16": 1,
    f"python run_qa.py {HF} bert-large-uncased --dataset_name squad --max_seq_length 384": 1,
    f"torchrun --nproc_per_node 4 run_summarization.py {HF} t5-base --dataset_name cnn_dailymail "
    "--per_device_train_batch_size 4": 4,
    f"python run_translation.py {HF} t5-small --source_lang en --target_lang ro": 1,
    f"python run_image_classification.py {HF} google/vit-base-patch16-224 --dataset_name "
    "food101 --fp16": 1,
    # TRL
    f"accelerate launch --mixed_precision bf16 sft.py {HF} meta-llama/Meta-Llama-3-8B "
    "--use_peft --per_device_train_batch_size 2 --max_seq_length 2048": 1,
    f"trl sft {HF} Qwen/Qwen2-0.5B --dataset_name trl-lib/Capybara --bf16": 1,
    f"accelerate launch --num_processes 8 dpo.py {HF} mistralai/Mistral-7B-v0.1 --bf16 "
    "--per_device_train_batch_size 1": 8,
    f"trl dpo {HF} Qwen/Qwen2-7B --load_in_4bit --use_peft --bf16": 1,
    # DeepSpeed, Axolotl, LLaMA-Factory, torchtune, LitGPT
    f"deepspeed --num_gpus 8 run_clm.py --deepspeed ds_config_zero3.json {HF} "
    "meta-llama/Llama-2-7b-hf --bf16 --per_device_train_batch_size 4": 8,
    f"deepspeed finetune.py --deepspeed ds_z2.json {HF} facebook/opt-6.7b --fp16": 4,
    "accelerate launch -m axolotl.cli.train examples/llama-3/lora-8b.yml": 1,
    "axolotl train examples/mistral/qlora.yml": 1,
    f"llamafactory-cli train --stage sft {HF} meta-llama/Meta-Llama-3-8B --finetuning_type lora "
    "--per_device_train_batch_size 1 --bf16 true": 1,
    "tune run lora_finetune_single_device --config llama3/8B_lora_single_device": 1,
    "tune run --nproc_per_node 8 full_finetune_distributed --config llama2/7B_full": 8,
    "litgpt finetune_lora meta-llama/Llama-2-7b-hf --precision bf16-true": 1,
    "litgpt pretrain --model_name pythia-160m": 4,
    # Megatron, NeMo, nanoGPT
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 4 --global-batch-size 256 --train-iters 500000 --fp16": 8,
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 --bf16": 8,
    "torchrun --nproc_per_node 8 pretrain_bert.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 "
    "--micro-batch-size 4 --fp16": 8,
    "torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py": 8,
    "python train.py --dataset=shakespeare_char --device=cuda --compile=False": 1,
    # timm, torchvision, Ultralytics, detectron2, MMDetection, Lightning
    "python train.py /data/imagenet --model resnet50 --batch-size 256 --amp --epochs 300": 1,
    "torchrun --nproc_per_node=8 train.py --data-dir /imagenet --model convnext_base "
    "-b 128 --amp": 8,
    "torchrun --nproc_per_node=8 train.py --model resnet50 --batch-size 128 --epochs 90": 8,
    "python main.py -a resnet18 --batch-size 256 /imagenet": 1,
    "python main.py --arch vit_b_16 -b 64 /imagenet": 2,
    "yolo detect train data=coco.yaml model=yolov8m.pt epochs=100 imgsz=640 batch=16": 1,
    "python tools/train_net.py --num-gpus 8 --config-file "
    "configs/COCO-Detection/faster_rcnn_R_50_FPN_3x.yaml": 8,
    "python tools/train.py configs/retinanet/retinanet_r50_fpn_1x_coco.py": 4,
    # Diffusers, Whisper, recommendation
    "accelerate launch --mixed_precision fp16 train_text_to_image.py "
    "--pretrained_model_name_or_path stabilityai/stable-diffusion-2-1 --train_batch_size 1": 1,
    "accelerate launch train_dreambooth.py --pretrained_model_name_or_path "
    "runwayml/stable-diffusion-v1-5 --train_batch_size 1": 1,
    f"torchrun --nproc_per_node 2 run_speech_recognition_seq2seq.py {HF} openai/whisper-small "
    "--fp16": 2,
}
