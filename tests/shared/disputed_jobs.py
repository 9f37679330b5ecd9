"""Jobs that contradict themselves or leave unstated what their time hangs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VISION = "--model resnet50 --batch-size 256 --epochs 90 --img-size 224 --dataset imagenet"
TRAIN = f"python train.py {VISION} --amp"
# A network whose time hangs on the precision, on every GPU with tensor cores.
DENSE = VISION.replace("resnet50", "vgg16")
GLUE = (
    "python run_glue.py --model_name_or_path bert-large-uncased --task_name mnli "
    "--per_device_train_batch_size 32"
)
GPT = (
    "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --train-iters 500"
)


@dataclass(frozen=True, slots=True)
class DisputedJob:
    """A job by what its script says and, where it has one, its comment; ``told`` must be named."""

    command: str
    told: str
    comment: str = ""
    directives: str = ""

    @property
    def script(self) -> str:
        """The whole script."""
        return f"#!/bin/bash\n{self.directives}\n{self.command}\n"


def _by_comment() -> Iterator[DisputedJob]:
    """A comment, or an annotation, that the script contradicts."""
    for comment, told in (
        ("model=resnet101", "model"),
        ("model=vit-base-16", "model"),
        ("precision=fp32", "precision"),
        ("precision=bf16-mixed", "precision"),
        ("batch=64", "batch_size"),
        ("epochs=3", "epochs"),
        ("epochs=89.5", "epochs"),
        ("image=160", "image_size"),
        ("dataset=cifar10", "dataset"),
        ("model=resnet50 epochs=1 precision=fp32", "epochs"),
    ):
        yield DisputedJob(TRAIN, told, comment)
    length = f"{GLUE} --fp16 --max_seq_length 128 --max_steps 1000"
    for comment, told in (("seq=512", "seq_len"), ("steps=10", "steps"), ("bs=8", "batch_size")):
        yield DisputedJob(length, told, comment)
    whole = f"{GPT} --micro-batch-size 4 --global-batch-size 64 --fp16"
    for comment, told in (
        ("micro_batch=1", "batch_size"),
        ("gbs=32", "global_batch_size"),
        ("tp=2", "tensor_parallel"),
        ("pp=4", "pipeline_parallel"),
        ("steps=5", "steps"),
    ):
        split = " --tensor-model-parallel-size 4" if told == "tensor_parallel" else ""
        stages = " --pipeline-model-parallel-size 2" if told == "pipeline_parallel" else ""
        yield DisputedJob(whole + split + stages, told, comment)
    yield DisputedJob(f"{TRAIN} --grad-accum-steps 4", "grad_accum", "ga=1")


def _within() -> Iterator[DisputedJob]:
    """A command that says two things at once."""
    for command, told in (
        (f"{GLUE} --max_seq_length 128 --num_train_epochs 3 --fp16 --bf16", "precision"),
        (f"{TRAIN} --max_steps 100", "steps"),
        (f"{TRAIN} --num-steps 7", "steps"),
        (f"{TRAIN} --total-batch-size 100", "global_batch_size"),
        (f"torchrun train.py {VISION.replace('--batch', '--micro-batch')} --bs 512 --amp", "grad"),
        (f"{TRAIN.replace('--batch-size', '--batch')}", "batch"),
        (f"{TRAIN.replace('--batch-size', '--train-batch-size')}", "batch"),
        (f"{GPT} --micro-batch-size 8 --global-batch-size 100 --fp16", "global_batch_size"),
        (f"{TRAIN} --num-classes 10", "classes"),
        (f"{TRAIN.replace('imagenet', 'cifar10')} --nb-classes 1000", "classes"),
        (f"{TRAIN} --weights ResNet101_Weights.IMAGENET1K_V1", "weights"),
        (f"{TRAIN} --weights vit_base_patch16_224.pth", "weights"),
        (f"{TRAIN}\n{TRAIN.replace('256', '64')}", "batch_size"),
        (f"{TRAIN}\n{TRAIN}", "steps"),
        (f"for seed in 1 2 3; do {TRAIN} --seed $seed; done", "steps"),
        (f"run() {{\n{TRAIN}\n}}\nrun\nrun", "steps"),
    ):
        yield DisputedJob(command, told)
    for directives, launcher in (
        ("#SBATCH --gres=gpu:4", "torchrun --nproc_per_node 8"),
        ("#SBATCH --gres=gpu:a100:4", "torchrun --nproc_per_node=1"),
        ("#SBATCH --gpus-per-node=4", "python -m torch.distributed.launch --nproc_per_node 2"),
        ("#SBATCH -N 1\n#SBATCH --gres=gpu:4", "torchrun --nnodes 2 --nproc_per_node 4"),
    ):
        command = TRAIN.replace("python", launcher)
        yield DisputedJob(command, "#SBATCH asks for", directives=directives)


def _unreadable() -> Iterator[DisputedJob]:
    """What decides stands where it cannot be read."""
    for command, told in (
        (TRAIN.replace("256", "$BS"), "batch_size"),
        (TRAIN.replace("90", "$EPOCHS"), "epochs"),
        (TRAIN.replace("resnet50", "$MODEL"), "model"),
        (f"{GLUE} --fp16 --num_train_epochs 3 --max_seq_length $L", "seq_len"),
        (f"{TRAIN} --grad-accum-steps $N", "grad_accum"),
        (f"python train.py --model resnet50 --config mine.yaml --amp {VISION}x", "mine.yaml"),
        ("python train.py --config-name big model=resnet50 trainer.precision=16", "big"),
        (f"{TRAIN.replace('imagenet', 'mine')}", "dataset"),
        (f"{TRAIN} --subset 0.1", "dataset"),
        (f"accelerate launch --config_file a.yaml own.py {VISION}", "launcher's file"),
    ):
        yield DisputedJob(command, told)


def _unstated() -> Iterator[DisputedJob]:
    """What decides is not there at all."""
    plain = VISION.removesuffix(" --dataset imagenet")
    for command, told in (
        (f"python train.py {plain} --amp", "dataset_size"),
        (f"{TRAIN.replace('--img-size 224', '').replace('imagenet', 'cifar10')}", "image_size"),
        (f"{GLUE} --fp16 --num_train_epochs 3".replace("run_glue", "own_glue"), "seq_len"),
        (
            "python run_clm.py --model_name_or_path gpt2 --fp16 --max_steps 50 "
            "--per_device_train_batch_size 4",
            "seq_len",
        ),
        (f"{TRAIN} --freeze-encoder", "frozen"),
        (f"{TRAIN} --teacher-model resnet152", "objective"),
        (f"{TRAIN.replace('train.py', 'dpo_train.py')}", "objective"),
        (f"{TRAIN} --resume last.pt", "start_epoch"),
        (
            f"{GLUE} --fp16 --max_seq_length 128 --max_steps 90 --resume_from_checkpoint True",
            "start_epoch",
        ),
        (f"{GLUE} --max_seq_length 128 --num_train_epochs 3", "precision"),
        (f"python train.py {DENSE} --drop-path 0.1 --mixup 0.2", "precision"),
        (f"torchrun --nproc_per_node 4 own.py {DENSE}", "precision"),
        (f"python train.py {DENSE} --auto-augment ra --lr-step-size 30", "precision"),
        (f"{TRAIN.replace('resnet50', 'unet')}", "unet"),
        (f"{TRAIN.replace('resnet50', 'clip-ViT-B-32')}", "clip"),
        (f"{TRAIN.replace('resnet50', 'our_net')}", "our_net"),
    ):
        yield DisputedJob(command, told)


def _said_twice() -> Iterator[DisputedJob]:
    """Two words for one thing, and places that say another thing than names."""
    for added, told in (
        ("--precision 32", "precision"),
        ("--mixed-precision no", "precision"),
        ("--arch resnet101", "model"),
        ("--network vit-base-16", "model"),
        ("--num-epochs 10", "epochs"),
        ("--max-epochs 300", "epochs"),
        ("-b 32", "batch_size"),
        ("--batch-size-per-gpu 64", "batch_size"),
        ("--crop-size 448", "image_size"),
        ("--imgsz 64", "image_size"),
        ("--data-path /data/cifar10", "dataset"),
        ("--total-batch-size 512 --grad-accum 8", "global_batch_size"),
        ("--start-epoch 95", "epoch"),
        ("--auto-resume", "start_epoch"),
        ("--resume-from last.ckpt", "start_epoch"),
        ("--limit-train-batches 0.1", "dataset"),
        ("--few-shot 16", "dataset"),
        ("--hparams best.yaml", "best.yaml"),
        ("--kd --teacher resnet152", "objective"),
        ("--num-frames 16", "frames"),
    ):
        yield DisputedJob(f"{TRAIN} {added}", told)
    length = f"{GLUE} --fp16 --max_seq_length 128"
    yield DisputedJob(f"{length} --num_train_epochs 3 --precision bf16", "precision")
    yield DisputedJob(f"{length} --max_steps 900 --max_length 512", "seq_len")
    yield DisputedJob(f"{length} --num_train_epochs 3 --max_train_samples $N", "dataset")
    yield DisputedJob(f"{length} --max_steps 900", "batch_size", "batch=64")
    yield DisputedJob(TRAIN, "its length in epochs", "steps=100")
    yield DisputedJob(f"{TRAIN} --grad-acc-steps 2", "grad_accum", "ga=4")
    yield DisputedJob(TRAIN.replace("imagenet", "cifar10 --data-dir /data/imagenet"), "dataset")
    megatron = f"{GPT} --micro-batch-size 4 --global-batch-size 64 --fp16"
    yield DisputedJob(f"{megatron} --train-samples 99999", "steps")
    yield DisputedJob(f"{megatron} --tensor-model-parallel-size 3", "tensor_parallel")
    yield DisputedJob(f"{megatron} --bf16", "precision")
    yield DisputedJob(megatron.replace("--num-layers 24", "--num-layers $L"), "layers")
    yield DisputedJob(megatron.replace("--hidden-size 1024 ", ""), "hidden")


def _named_so() -> Iterator[DisputedJob]:
    """Names that mean more than they say."""
    for program in (
        "main_moco.py",
        "simclr/train.py",
        "main_dino.py",
        "byol/main.py",
        "main_swav.py",
    ):
        yield DisputedJob(TRAIN.replace("train.py", program), "self-supervised")
    for name in ("bert", "lstm", "transformer", "gpt", "ViT-B/32", "RN50", "unet3d", "mobilenet"):
        yield DisputedJob(TRAIN.replace("resnet50", name), name)
    yolo = "yolo detect train model=yolov8n.pt epochs=100 imgsz=640"
    yield DisputedJob(f"{yolo} data=coco.yaml batch=-1", "batch")
    yield DisputedJob(f"{yolo} data=mine.yaml batch=64", "dataset")
    yield DisputedJob(f"{yolo} data=coco.yaml batch=64 fraction=0.1", "dataset")


def _started() -> Iterator[DisputedJob]:
    """Other processes than were asked for, and commands that may run more or less than once."""
    for launcher, directives in (
        ("deepspeed --num_gpus 2", "#SBATCH --gres=gpu:4"),
        ("accelerate launch --num_processes 2", "#SBATCH --gres=gpu:4"),
        ("accelerate launch --num_machines 2", "#SBATCH -N 1\n#SBATCH --gres=gpu:4"),
        ("horovodrun -np 8", "#SBATCH --gres=gpu:4"),
        ("srun --gres=gpu:2 torchrun --nproc_per_node 2", "#SBATCH --gres=gpu:4"),
        ("torchrun --nproc_per_node 16", "#SBATCH --gpus-per-node=a100:8"),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4", "#SBATCH --gres=gpu:4"),
        ("export CUDA_VISIBLE_DEVICES=0,1\npython", "#SBATCH --gres=gpu:4"),
    ):
        command = TRAIN.replace("python", launcher)
        yield DisputedJob(command, "#SBATCH asks for", directives=directives)
    llm = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_steps 500 --fp16"
    coder = f"run_clm.py --model_name_or_path Qwen/Qwen2.5-7B {llm} --block_size 2048"
    swift = f"swift sft --model Qwen/Qwen2.5-7B {llm} --max_length 2048"
    for command, told in (
        (f"deepspeed {coder} --deepspeed z3_offload.json", "sharding"),
        (f"accelerate launch --config_file fsdp.yaml {coder}", "sharding"),
        (f"accelerate launch --use_deepspeed --deepspeed_config_file z.json {coder}", "sharding"),
        (swift, "default lora"),
        (swift.replace("--gradient_accumulation_steps 4 ", "--tuner_type full "), "grad_accum"),
        (f"python train.py --num_envs 64 {VISION} --amp", "model"),
        (f"while true; do {TRAIN}; done", "steps"),
        (f"{TRAIN} &\n{TRAIN} --lr 1 &\nwait", "steps"),
        (f"{TRAIN} || {TRAIN} --resume x.pt", "steps"),
        (f"if [ -f x ]; then\n{TRAIN}\nelse\n{TRAIN.replace('256', '64')}\nfi", "batch_size"),
        (TRAIN.replace("256", "$((BS / 2))"), "batch_size"),
        (TRAIN.replace("256", "$(cat bs)"), "batch_size"),
        (TRAIN.replace("90", "${SLURM_ARRAY_TASK_ID:-90}"), "epochs"),
        (f"bash -c '{TRAIN.replace('256', '$B')}'", "batch_size"),
        (f"deepspeed {TRAIN.partition(' ')[2]} --deepspeed ds.json", "ds.json"),
    ):
        yield DisputedJob(command, told)


def _more_than_once() -> Iterator[DisputedJob]:
    """Programs that train several times, or on something else than they seem to."""
    several = "torchrun --nproc_per_node=4 " + TRAIN.partition(" ")[2]
    for added in ("--n-folds 5", "--cross-validation", "--n-trials=20", "--num-runs 3", "--sweep"):
        yield DisputedJob(f"{several} {added}", "trains more than once")
    yield DisputedJob(several.replace("train.py", "tune.py"), "trains more than once")
    yield DisputedJob(several.replace("train.py", "train_gan.py"), "adversaries")
    yield DisputedJob(f"{several} --num-frames 16", "frames")
    yield DisputedJob(f"{several} --start-epoch $E", "start_epoch")
    yield DisputedJob(f"{several} --opt sgd", "optimizer", "optimizer=adamw")
    yield DisputedJob(several, "dataset_size", "dataset_size=50000")
    yield DisputedJob(several, "gpus", "gpus=8")
    llama = "--model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_length 2048 --fp16"
    tuned = f"torchrun --nproc_per_node=4 train.py {llama} --per_device_train_batch_size 1"
    alpaca = f"{tuned} --dataset_name tatsu-lab/alpaca --num_train_epochs 3"
    yield DisputedJob(f"{alpaca} --packing True", "packed")
    yield DisputedJob(f"{tuned} --max_steps 900 --train_type $T", "options")
    yield DisputedJob(f"{tuned} --max_steps 900 --dpo_beta 0.1", "objective")


def _unclear() -> Iterator[DisputedJob]:
    """Flags of which nobody knows what they make of a training, and programs beside it."""
    several = "torchrun --nproc_per_node=4 " + TRAIN.partition(" ")[2]
    for added in (
        "--pgd-steps 7",
        "--adversarial",
        "--sam",
        "--width-mult 2",
        "--resolution 384",
        "--steps-per-epoch 9000",
        "--data-repeat 10",
        "--multi-crop 8",
        "--ensemble 5",
        "--model-parallel",
        "--no-cuda",
        "--device cpu",
        "--num_workers 0",
        "--mode full",
        "+trainer.limit=9",
    ):
        yield DisputedJob(
            f"{several} {added}", f"what {added.split()[0].partition('=')[0]} does to its time"
        )
    yield DisputedJob(f"{several} --opt lbfgs", "what its optimizer does to")
    yield DisputedJob(f"ncu -o report {several}", "what ncu does to its time")
    yield DisputedJob(
        f"python -m cProfile {TRAIN.partition(' ')[2]}", "what cProfile does to its time"
    )
    yield DisputedJob(f"{several}\npython evaluate.py --all", "what evaluate.py does to its time")
    yield DisputedJob(f"python prepare_data.py\n{several}", "what prepare_data.py does to its time")
    for before, told in (
        ("sleep 6h", "sleep"),
        ("until test -f done; do sleep 5; done", "sleep"),
        ("cp -r $DATA $TMPDIR", "cp"),
        ("srun -n1 cp -r $DATA $TMPDIR", "srun"),
        ("make data", "make"),
        ("python make_data.py", "make_data.py"),
        ("conda run -n x tar xf data.tar", "conda"),
        ("sudo -u me tar xf data.tar", "sudo"),
        ("env A=1 ./unpack test", "env"),
        ("docker build -t x .", "docker"),
        (". ./prepare.sh", "."),
        ("python -c 'import torch, mine; mine.run()'", "python"),
        ("python - <<E\nfor i in range(9): print(i)\nE", "python"),
        ("cat make_data.py | python", "python"),
        ("N=$(python count.py | head -n 1)", "$(count.py)"),
        ("N=`echo $(./count)`", "$($(./count))"),
        ("trap 'tar cf o.tar out' EXIT", "tar"),
        ("cp $DATA/imagenet.tar $TMPDIR", "cp"),
        ("curl -O https://a.org/data.tar", "curl"),
        ("bash -c 'python prepare_data.py; date'", "prepare_data.py"),
        ("export CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING"),
        ("env NCCL_P2P_DISABLE=1 \\", "NCCL_P2P_DISABLE"),
    ):
        yield DisputedJob(f"{before}\n{several}", f"what {told} does to its time")
    yield DisputedJob(f"{several}\njulia analyse.jl", "what julia does to its time")
    asked = "#SBATCH --gres=gpu:4"
    copied = f"srun -n 4 python {TRAIN.partition(' ')[2]}"
    yield DisputedJob(copied, "that they train together is assumed", directives=asked)
    yield DisputedJob(copied.replace("srun -n 4", "mpirun -np 4"), "mpirun may start copies")
    yield DisputedJob(f"{copied} --distributed=False", "srun may start copies", directives=asked)
    yield DisputedJob(f"f() {{ tar xf x; }}\nf\n{several}", "what tar does to its time")
    yield DisputedJob(f"{several} --n-gpu 8", "#SBATCH asks for", directives=asked)
    hidden = f"CUDA_VISIBLE_DEVICES= {several}"
    yield DisputedJob(hidden, "CUDA_VISIBLE_DEVICES names 0", directives=asked)


DISPUTED = (
    *_by_comment(),
    *_within(),
    *_unreadable(),
    *_unstated(),
    *_said_twice(),
    *_named_so(),
    *_started(),
    *_more_than_once(),
    *_unclear(),
)
NAMES = [f"{number} {job.told}" for number, job in enumerate(DISPUTED)]
