"""The precision of a trainer whose default is known is taken, told, and carries no kill limit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from predictor.errors import JobError
from predictor.estimate.fitting import Fitted
from predictor.estimate.limits import too_thin
from predictor.graphs.catalog import entry_of
from predictor.identify.files import user_files
from predictor.identify.grammar import parse_text, stated_text
from predictor.identify.identify import identify
from predictor.identify.stated import Stated
from predictor.job.precision import Precision
from predictor.physics.job_graph import job_graph
from predictor.settings import Evidence

GLUE = (
    "python run_glue.py --model_name_or_path bert-large-uncased --task_name mnli "
    "--max_seq_length 128 --per_device_train_batch_size 32 --num_train_epochs 3"
)
VISION = "--model resnet50 --batch-size 64 --epochs 90 --data-path /data/imagenet"
GPUS = {"gpu": "a100-sxm4-80gb", "gpus": 1}
LAX = 0.95, Evidence(max_interval_ratio=1e9, refused_tiers=())


def read(script: str, comment: str | None = None) -> Stated:
    return identify(comment=comment, script=script, argv=("job.sh",))


@pytest.mark.parametrize(
    ("command", "trainer", "precision"),
    [
        (GLUE, "hf-trainer", "fp32"),
        (f"torchrun train.py {VISION} --auto-augment ra", "torchvision", "fp32"),
        (f"python train.py {VISION} --drop-path 0.1 --mixup 0.2", "timm", "fp32"),
        (f"torchrun --nproc_per_node 4 mine.py {VISION}", "pytorch", "fp32"),
        ("accelerate launch own.py --model resnet50 --bs 8 --epochs 1", "accelerate", "fp32"),
        ("torchrun own.py --model resnet50 --bs 8 --epochs 1", "pytorch", "fp32"),
        ("python train.py --block-size 1024 --n-layer 12 --bs 8", "nanogpt", "mixed_bf16_fp32"),
        ("yolo detect train model=yolo11x.pt epochs=5", "ultralytics", "mixed_fp16_fp32"),
        ("trl sft --model_name_or_path Qwen/Qwen2.5-3B", "trl", "mixed_bf16_fp32"),
        ("litgpt pretrain pythia-410m --devices 4", "litgpt", "mixed_bf16_fp32"),
        ("tune run lora_finetune_distributed --config llama3_2/3B_lora", "torchtune", "bf16"),
        ("torchrun train.py --hidden_width 768 --num_heads 12", "aws-fsdp", "mixed_bf16_fp32"),
        ("nemo llm pretrain --factory llama3_8b", "nemo-recipes", "mixed_bf16_fp32"),
        ("python tools/train.py configs/rpn/rpn_r50_fpn_1x_coco.py", "openmmlab", "fp32"),
        ("python -m open_clip_train.main --model ViT-B-16 --bs 8", "open-clip", "mixed_fp16_fp32"),
    ],
)
def test_a_trainer_that_is_known_has_a_precision(
    command: str, trainer: str, precision: str
) -> None:
    stated = read(command)
    assert stated.trainer == trainer
    assert "precision" not in stated.values
    fields = {"model": "resnet50", "batch_size": 8} | dict(stated.values)
    fields.pop("global_batch_size", None)
    job = Stated(fields, dict.fromkeys(fields, "script"), trainer=trainer).job(**GPUS)
    assert job.precision.value == precision


@pytest.mark.parametrize(
    "command",
    [
        f"{GLUE} --fp16",
        f"{GLUE} --fp16 $FP16",
        f"{GLUE} --half_precision",
        f"{GLUE} --bf16 True",
        f"accelerate launch --mixed_precision $P own.py {VISION}",
        f"accelerate launch --config_file mine.yaml own.py {VISION}",
        f"torchrun own.py {VISION} --loss-scale 128",
        f"{GLUE} --deepspeed mine.json",
        "yolo detect train model=yolo11x.pt epochs=5 amp=False",
        f"python own.py {VISION.replace('--data-path', '--datadir')}",
        f"torchrun own.py --config mine.yaml --model resnet50 --epochs 3 {VISION}",
    ],
)
def test_nothing_is_assumed_where_a_flag_or_a_file_may_say_it(command: str) -> None:
    assert read(command).trainer is None


def test_a_precision_that_is_left_to_the_trainer_is_its_default(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(
        "base_model: google/gemma-2b\nmicro_batch_size: 2\nbf16: auto\nfp16: null\nmax_steps: 9\n"
    )
    stated = identify(argv=("axolotl", "train", "mine.yml"), files=user_files(tmp_path))
    assert (stated.trainer, stated.problems) == ("axolotl", ())
    assert stated.job(**GPUS).precision.value == "mixed_bf16_fp32"


def test_an_explicit_no_is_what_the_trainer_does_anyhow() -> None:
    assert read(f"{GLUE} --fp16 False").trainer == "hf-trainer"


def test_a_comment_settles_it() -> None:
    stated = read(GLUE, "precision=bf16-mixed")
    assert (stated.trainer, stated.values["precision"].value) == (None, "mixed_bf16_fp32")


def test_a_framework_that_a_comment_names_has_a_precision() -> None:
    stated = read("python own.py --model resnet50 --bs 8 --epochs 3", "framework=tensorflow")
    assert stated.job(**GPUS, dataset_size=1000).precision.value == "tf32"
    volta = stated.job(gpu="v100-sxm2-32gb", dataset_size=1000)
    assert volta.precision.value == "fp32"


def test_a_text_keeps_what_is_assumed() -> None:
    stated = read(GLUE)
    assert parse_text(stated_text(stated), "mark").trainer == "hf-trainer"


def test_no_run_teaches_what_its_precision_was_assumed_to_be() -> None:
    with pytest.raises(JobError, match="precision"):
        read(GLUE).facts.job(**GPUS)


def test_the_assumption_is_told_widens_and_carries_no_limit(fitted: Fitted) -> None:
    assumed = fitted.predictor.predict(read(GLUE, "options=tf32=off").job(**GPUS))
    stated = read(GLUE, "precision=fp32 options=tf32=off")
    said = fitted.predictor.predict(stated.job(**GPUS))
    told = next(one for one in assumed.assumptions if one.field == "precision")
    assert "Trainer of Transformers" in str(told)
    assert "huggingface.co" in str(told)
    assert assumed.total_s == pytest.approx(said.total_s)
    own, other = assumed.total_interval(), said.total_interval()
    assert own is not None
    assert other is not None
    assert own[1] / own[0] > 1.5 * other[1] / other[0]
    assert "precision" in (too_thin([assumed], *LAX) or "")
    assert too_thin([said], *LAX) is None


@pytest.mark.parametrize(
    ("words", "field"),
    [("--resume last.pt", "start_epoch"), ("--eval_strategy epoch", "evaluation")],
)
def test_what_is_done_and_what_comes_beside_the_steps_is_told(
    fitted: Fitted, words: str, field: str
) -> None:
    plain = fitted.predictor.predict(read(f"{GLUE} --fp16").job(**GPUS))
    found = fitted.predictor.predict(read(f"{GLUE} --fp16 {words}").job(**GPUS))
    assert found.total_s == pytest.approx(plain.total_s)
    told = next(one for one in found.assumptions if one.field == field)
    assert told.decisive is (field == "start_epoch")
    assert (too_thin([found], *LAX) is None) is (field == "evaluation")


def test_a_resume_with_its_epoch_is_no_assumption() -> None:
    stated = read(f"torchrun train.py {VISION} --resume x.pt --start-epoch 80")
    assert stated.values["epochs"] == 10
    assert "options" not in stated.values


@pytest.mark.parametrize(
    "start",
    [
        ". inner.sh",
        "source ./inner.sh",
        "cd run && source ../inner.sh",
        "bash inner.sh",
        "bash -x ./inner.sh",
        "srun bash noext",
        "sh inner.sh 90",
        "chmod +x inner.sh; ./inner.sh",
    ],
)
def test_a_script_in_a_script_is_read(tmp_path: Path, start: str) -> None:
    inner = "python train.py --model vgg16 --batch-size $BATCH --epochs ${EPOCHS:-90}\n"
    for name in ("inner.sh", "noext"):
        (tmp_path / name).write_text(inner)
    (tmp_path / "run").mkdir()
    (tmp_path / "env.sh").write_text("export BATCH=64 EPOCHS=90")
    script = f"#!/bin/bash\nsource env.sh\n{start}\n"
    stated = identify(script=script, argv=("job.sh",), files=user_files(tmp_path))
    assert (stated.model, stated.values["batch_size"]) == ("vgg16", 64)
    assert stated.values["epochs"] == 90


def test_a_file_that_sources_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("source env.sh\n. ./env.sh\nN=7\n")
    script = "#!/bin/bash\nsource env.sh\npython train.py --model vgg16 --epochs $N\n"
    stated = identify(script=script, argv=("job.sh",), files=user_files(tmp_path))
    assert stated.values["epochs"] == 7


def test_an_empty_directive_says_nothing() -> None:
    assert read(f"#!/bin/bash\n#SBATCH\n#SBATCH --exclusive\n{GLUE}").trainer == "hf-trainer"


@pytest.mark.parametrize("width", ["--intermediate_size", "--llama_intermediate_size"])
def test_a_decoder_by_its_sizes_is_priced_as_the_network_of_these_sizes(width: str) -> None:
    sizes = f"--hidden_width=4096 --num_layers=32 --num_heads=32 {width}=11008"
    flags = f"{sizes} --model_type=llama_v2 --vocab_size=32000 --max_context_width=4096"
    stated = read(f"torchrun train.py {flags} --train_batch_size=1 --max_steps=9 --epochs=3")
    assert stated.values["steps"] == 9
    job = stated.job(gpu="h100-sxm5-80gb", gpus=8)
    named = job.but(model="llama2-7b", variant=())
    assert job_graph(job, entry_of(job.model)).parameters == pytest.approx(
        job_graph(named, entry_of(named.model)).parameters, rel=1e-3
    )


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        ("loss_scaler = NativeScaler()\n", None),
        ("p.add_argument('--amp-opt-level', default='O1')\nm, o = amp.initialize(m, o)\n", None),
        ("with torch.autocast(device, torch.float16):\n", None),
        ("model = AutoModel.from_pretrained(name, torch_dtype=torch.bfloat16)\n", None),
        ("p.add_argument('--amp-opt-level', default='O1')\nwith autocast():\n", None),
        ("accelerator = Accelerator(mixed_precision='fp16')\n", None),
        ("import bmtrain as bmt\nbmt.init_distributed()\n", None),
        ("class Config:\n    mixed_precision: bool = True\n", None),
        ("engine, *_ = deepspeed.initialize(model=m, config=settings)\n", None),
        ("p.add_argument('--amp', action='store_true')\nwith autocast():\n", "pytorch"),
        ("torch.backends.cuda.matmul.allow_tf32 = True\n", None),
        ("@hydra.main(config_path='conf')\ndef main(cfg): ...\n", None),
        ("model(batch).backward()\n", "pytorch"),
    ],
)
def test_no_default_stands_where_the_program_computes_in_16_bits_of_itself(
    tmp_path: Path, text: str, trainer: str | None
) -> None:
    (tmp_path / "mine.py").write_text(text)
    argv = tuple(f"torchrun mine.py {VISION}".split())
    assert identify(argv=argv, files=user_files(tmp_path)).trainer == trainer


@pytest.mark.parametrize("said_so", ["--amp", "--mixed_precision true"])
@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("with torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp):\n", "bf16"),
        ("d = torch.bfloat16 if config.mixed_precision else torch.float32\n", "bf16"),
        ("d = torch.float16 if old else torch.bfloat16\nwith autocast('cuda', d):\n", "fp16"),
        ("with autocast(enabled=args.amp):\n", "fp16"),
    ],
)
def test_amp_is_in_the_format_of_the_programs_autocast(
    tmp_path: Path, text: str, precision: str, said_so: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    argv = ("python", "mine.py", *said_so.split(), "--model", "resnet50", "--epochs", "3")
    found = identify(argv=argv, files=user_files(tmp_path)).values["precision"]
    assert str(found) == f"mixed_{precision}_fp32"


@pytest.mark.parametrize(
    ("text", "flags", "sound"),
    [
        ("model = get_peft_model(model, LoraConfig(r=8))\n", "", False),
        ("model = get_peft_model(model, LoraConfig(r=8))\n", "--lora_r 8", True),
        ("p.add_argument('--use_lora')\nif args.use_lora: get_peft_model(m, c)\n", "", True),
        (
            "def train(lora_r: int = 8):\n    m = get_peft_model(m, LoraConfig(r=lora_r))\n",
            "",
            False,
        ),
        ("p.add_argument('--use_8bit_adam')\nm = load(n, load_in_4bit=True)\n", "", False),
        ("for p in body.parameters():\n    p.requires_grad = False\n", "", False),
        ("p.add_argument('--freeze')\nif args.freeze: body.requires_grad_(False)\n", "", True),
        ("trainer.train()\n", "", True),
    ],
)
def test_what_only_the_program_tells_of_leaves_no_limit(
    tmp_path: Path, text: str, flags: str, sound: bool
) -> None:
    (tmp_path / "tune.py").write_text(text)
    command = f"python tune.py --model_name_or_path google/gemma-2b --max_steps 9 --fp16 {flags}"
    stated = identify(argv=tuple(command.split()), files=user_files(tmp_path))
    assert (not stated.contradictions) == sound


SPLIT = "m = nn.DataParallel(m)\n"


def test_the_trainer_of_transformers_uses_every_gpu_that_it_sees(tmp_path: Path) -> None:
    text = "from transformers import TrainingArguments\nargs = TrainingArguments(out)\n"
    argv = tuple(f"python mine.py {VISION} --amp".split())
    for more, alone in (("", False), ("device_map='auto'\n", True)):
        (tmp_path / "mine.py").write_text(text + more)
        stated = identify(argv=argv, files=user_files(tmp_path))
        assert (stated.alone, stated.values["batch_size"]) == (alone, 64)
        assert not stated.contradictions


def test_a_module_that_spreads_a_program_over_gpus_counts_for_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from utils import train\ntrain()\n")
    argv = tuple(f"python mine.py {VISION} --amp".split())
    assert identify(argv=argv, files=user_files(tmp_path)).alone
    (tmp_path / "utils.py").write_text("hparams.gpus = -1\n")
    assert not identify(argv=argv, files=user_files(tmp_path)).alone


@pytest.mark.parametrize(
    "divided", ["args.batch_size // args.micro_batch_size // world_size", "batch_size // 2"]
)
def test_a_batch_that_a_program_divides_by_its_micro_steps_is_asked_for(
    tmp_path: Path, divided: str
) -> None:
    (tmp_path / "mine.py").write_text(f"steps = max(1, {divided})\n")
    argv = tuple(f"torchrun --nproc_per_node 4 mine.py {VISION} --amp".split())
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert ("batch_size" in stated.values) == ("micro" not in divided)


@pytest.mark.parametrize(
    ("text", "of_all"),
    [
        (SPLIT, 64),
        (f"{SPLIT}v = loader(args.batch_size * 2)\n", 64),  # that judges
        (f"{SPLIT}b = args.batch_size * args.n_gpu\n", None),
        (f"{SPLIT}b = bs * max(1, n_gpu)\n", None),
        (f"{SPLIT}m = DistributedDataParallel(m)\n", None),
        ("t = pl.Trainer(devices=4)\n", None),
        ("import jax\n", None),
        ("from flax import nnx\n", None),
    ],
)
def test_a_program_that_uses_several_gpus_by_itself_is_not_taken_for_one(
    tmp_path: Path, text: str, of_all: int | None
) -> None:
    (tmp_path / "mine.py").write_text(text)
    argv = tuple(f"python mine.py {VISION} --amp".split())
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert (stated.alone, stated.contradictions[0].field) == (False, "gpus")
    assert "batch_size" not in stated.values
    assert stated.values.get("global_batch_size") == of_all
    unclear = any("of one GPU or of all" in problem.text for problem in stated.doubts)
    assert unclear == (of_all is None)
    assert identify(argv=argv).alone


def test_what_a_program_makes_of_its_flags_is_not_what_they_say(tmp_path: Path) -> None:
    argv = tuple(f"torchrun --nproc_per_node 2 mine.py {VISION} --amp".split())
    (tmp_path / "mine.py").write_text("qa.batch_size = int(args.batch_size * 100 / 60)\n")
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert "batch_size" not in stated.values
    assert stated.contradictions
    (tmp_path / "mine.py").write_text("os.system(f'accelerate launch {words} train.py')\n")
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert not {"epochs", "steps"} & stated.values.keys()
    assert stated.contradictions


@pytest.mark.parametrize(
    ("text", "of_one"),
    [
        ("args.batch_size = int(args.batch_size / ngpus_per_node)\n", False),
        ("loader = DataLoader(data, batch_size=cfg.batch_size // world_size)\n", False),
        ("opt.batch_size //= dist.get_world_size()\n", False),
        ("args.batch_size_per_gpu = args.bs // dist.get_world_size()\n", False),
        ("steps = len(data) // args.batch_size // world_size\n", True),
        ("total = args.batch_size * world_size\n", True),
    ],
)
def test_a_batch_that_the_program_divides_by_its_gpus_is_not_taken_for_that_of_one(
    tmp_path: Path, text: str, of_one: bool
) -> None:
    (tmp_path / "mine.py").write_text("from data import loader\n")
    (tmp_path / "data.py").write_text(text)
    flags = f"mine.py {VISION} --amp"
    stated = identify(argv=tuple(f"torchrun {flags}".split()), files=user_files(tmp_path))
    assert ("batch_size" in stated.values) == of_one
    assert any("of one GPU or of all" in problem.text for problem in stated.doubts) != of_one
    single = identify(argv=tuple(f"python {flags}".split()), files=user_files(tmp_path))
    assert "batch_size" in single.values


def test_what_a_program_freezes_for_a_while_is_not_taken_for_frozen(tmp_path: Path) -> None:
    argv = tuple(f"torchrun mine.py {VISION} --amp --freeze_backbone".split())
    (tmp_path / "mine.py").write_text("if epoch == args.warm_up: unfreeze_backbone(model)\n")
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert "options" not in stated.values
    assert "trains later what it freezes" in stated.doubts[0].text
    assert identify(argv=argv).values["options"] == (("frozen", "backbone"),)


LOOP = "import torch\nfrom engine import step\nloss.backward()\noptimizer.step()\n"


@pytest.mark.parametrize(
    ("text", "module", "trainer"),
    [
        (LOOP, "precision_score(y, p)\n", "pytorch"),
        (LOOP, "with torch.cuda.amp.autocast():\n", None),
        (LOOP, "model.to(torch.bfloat16)\n", None),
        (LOOP.replace("import torch", "import jax"), "", None),
        ("import torch\nfrom lib import fit\nfit(model)\n", "", None),
    ],
)
def test_a_loop_in_plain_pytorch_computes_in_fp32(
    tmp_path: Path, text: str, module: str, trainer: str | None
) -> None:
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "engine.py").write_text(module)
    argv = tuple(f"python mine.py {VISION}".split())
    stated = identify(argv=argv, files=user_files(tmp_path))
    assert (stated.trainer, stated.values.get("framework")) == (trainer, trainer)
    assert identify(argv=argv).trainer is None


@pytest.mark.parametrize("place", ["engine.py", "engine/__init__.py", "engine/loop.py"])
def test_the_modules_beside_a_program_count_for_it(tmp_path: Path, place: str) -> None:
    (tmp_path / "src/engine").mkdir(parents=True)
    (tmp_path / "src/main.py").write_text("from engine import train_one_epoch\n")
    (tmp_path / "src/engine/__init__.py").write_text("from .loop import train_one_epoch\n")
    argv = tuple(f"python src/main.py {VISION} --drop-path 0.1 --mixup 0.2".split())
    (tmp_path / "src" / place).write_text("with torch.cuda.amp.autocast():\n")
    assert identify(argv=argv, files=user_files(tmp_path)).trainer is None
    assert identify(argv=argv).trainer == "timm"


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    for name in ("main.py", "pack/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import pack\nfrom pack import main\nimport main\n")
    argv = tuple(f"python main.py {VISION}".split())
    assert identify(argv=argv, files=user_files(tmp_path)).model == "resnet50"


def test_a_format_left_to_the_trainer_in_capitals_is_its_default() -> None:
    command = "swift sft --model Qwen/Qwen2.5-3B --max_steps 9 --per_device_train_batch_size 2"
    assert read(f"{command} --dtype AUTO").trainer == "ms-swift"
    assert read(f"{command} --dtype $DTYPE").trainer is None


EPOCHS = "p.add_argument('-e', '--epochs', type=int, default=90, help='how long (default=3)')\n"
BATCH = "p.add_argument('--batch_size', default=64)\n"


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        (EPOCHS + BATCH, "", {"epochs": 90, "batch_size": 64}),
        (EPOCHS + BATCH, "--steps 7", {"steps": 7, "batch_size": 64}),
        (EPOCHS + BATCH, "-e 5", {"batch_size": 64}),
        (EPOCHS, "--epochs $N", {}),
        (EPOCHS + "p.add_argument('--steps', default=100)\n", "", {}),
        (EPOCHS + "p.add_argument('--steps', default=None)\n", "", {"epochs": 90}),
        (EPOCHS + "args.epochs = 5\n", "", {}),
        (EPOCHS + "self.epochs = 5\n", "", {"epochs": 90}),
        (EPOCHS + "vars(args).update(known)\n", "", {}),
        (EPOCHS + "p.add_argument('--device', default='cpu')\n", "", {}),
        (EPOCHS + "p.add_argument('--config', default='configs/a.yaml')\n", "", {}),
        (EPOCHS + "s = p.add_subparsers()\n", "", {}),
        ("p.add_argument('--epochs', default=cfg.epochs)\n", "", {}),
        (f"# {EPOCHS}", "", {}),
        (f"p.add_argument('--name')\n{EPOCHS}", "", {"epochs": 90}),
        (f"{EPOCHS}with torch.no_grad():\n    model(x)\n", "", {}),
        ("@click.option('--epochs', default=4)\n", "", {"epochs": 4}),
        (
            "def train(\n    epochs: int = 3,  # all\n):\n    pass\nfire.Fire(train)\n",
            "",
            {"epochs": 3},
        ),
        ("def train(\n    epochs: int = 3,\n):\n    pass\n", "", {}),
        (
            "class Training(TrainingArguments):\n"
            "    optim: str = field(default='adamw_torch')\n    model_max_length: int = 512\n"
            "HfArgumentParser(Training)\n",
            "",
            {"optimizer": "adamw"},
        ),
        ("p.add_argument('--amp', action='store_true')\n", "", {}),
    ],
)
def test_what_a_program_takes_for_a_flag_that_is_not_said(
    tmp_path: Path, text: str, flags: str, told: dict[str, object]
) -> None:
    (tmp_path / "mine.py").write_text(text)
    script = f"#!/bin/bash\npython mine.py --model resnet50 --lr 0.1 {flags}\n"
    stated = identify(script=script, files=user_files(tmp_path))
    assert (stated.model is None) == ("no_grad" in text)
    assert {k: v for k, v in stated.values.items() if k not in ("model", "framework")} == told
    assert all(stated.origins[name] == "file" for name in {*told} - {"steps"})


def test_options_of_a_module_are_those_of_its_program_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from opts import parser\nimport tool\n")
    (tmp_path / "tool.py").write_text(f"{EPOCHS}if __name__ == '__main__':\n    main()\n")
    (tmp_path / "opts.py").write_text("import tool\n")
    argv = ("python", "mine.py", "--model", "resnet50", "--lr", "0.1")
    assert "epochs" not in identify(argv=argv, files=user_files(tmp_path)).values
    (tmp_path / "opts.py").write_text(EPOCHS)
    assert identify(argv=argv, files=user_files(tmp_path)).values["epochs"] == 90


def test_the_options_of_a_long_program_do_not_take_long(tmp_path: Path) -> None:
    argv = ("python", "mine.py", "--model", "resnet50", "--lr", "0.1")
    for text in (
        f"{EPOCHS}{'p.add_argument(' * 4000}",
        "p.add_argument('--a'," * 3000,
        EPOCHS * 700,
    ):
        (tmp_path / "mine.py").write_text(text)
        before = time.process_time()
        identify(argv=argv, files=user_files(tmp_path))
        assert time.process_time() - before < 1


def test_the_name_of_a_run_is_no_network() -> None:
    argv = "python train.py --model_id run1 --model_name_or_path bert-base-uncased --max_steps 9"
    stated = identify(argv=tuple(argv.split()))
    assert (stated.model, stated.contradictions) == ("bert-base", ())
    assert identify(argv=("python", "train.py", "--model_id", "gpt2", "--lr", "1")).model


def test_a_cap_of_nines_says_nothing() -> None:
    argv = "python train.py --model resnet50 --epochs 3 --max_train_samples 999999"
    assert "dataset_size" not in identify(argv=tuple(argv.split())).values


def test_a_multirun_of_hydra_trains_more_than_once() -> None:
    argv = "python train.py -m model.name=resnet18,resnet50 trainer.max_epochs=20"
    assert "epochs" not in identify(argv=tuple(argv.split())).values
    argv = "python train.py -m resnet18 --epochs 20"
    assert identify(argv=tuple(argv.split())).values["epochs"] == 20


LLAMA = "model: {dtype: bfloat16, model_config: {is_llama_config: true, num_hidden_layers: 4}}\n"


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        (
            "torchrun run_train.py --config-file c.yaml",
            LLAMA + "parallelism: {dp: 4, tp: 2}\noptimizer: {zero_stage: 1}\n"
            "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 8,"
            " sequence_length: 4096, train_steps: 50}\n"
            "checkpoints: {resume_checkpoint_path: ../runs/20}\n",
            "model=gpt-style batch=2 grad_accum=8 seq_len=4096 steps=50 tensor_parallel=2 zero=1"
            " options=resumed=on",
        ),
        (
            "composer train.py c.yaml",
            "variables: {max_seq_len: 2048}\nmax_seq_len: ${variables.max_seq_len}\n"
            "max_duration: 500ba\nglobal_train_batch_size: 256\n"
            "device_train_microbatch_size: auto\n"
            "model: {name: hf_causal_lm, pretrained_model_name_or_path: gpt2}\n"
            "precision: amp_bf16\n"
            "fsdp_config: {sharding_strategy: FULL_SHARD}\n",
            "model=gpt2 global_batch=256 steps=500 seq_len=2048 sharding=fsdp",
        ),
        (
            "python ./deepy.py train.py c.yml",
            "pipe_parallel_size: 2\nmodel_parallel_size: 2\nnum_layers: 8\npos_emb: rotary\n"
            "no_weight_tying: true\ntrain_micro_batch_size_per_gpu: 4\nseq_length: 2048\n"
            "train_iters: 70\nfp16: {enabled: true}\nzero_optimization: {stage: 1}\n",
            "model=gpt-style batch=4 seq_len=2048 steps=70 tensor_parallel=2 pipeline_parallel=2"
            " zero=1 precision=mixed_fp16",
        ),
        (
            "torchrun -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B data.max_length=2048"
            " data.train_batch_size=96 trainer.total_epochs=2"
            " engine.ulysses_sequence_parallel_size=2",
            "",
            "model=qwen3-8b global_batch=96 seq_len=2048 epochs=2 context_parallel=2 sharding=fsdp",
        ),
    ],
)
def test_configurations_of_trainers_of_language_models(
    tmp_path: Path, command: str, text: str, expected: str
) -> None:
    words = tuple(command.split())
    if text:
        (tmp_path / words[-1]).write_text(text)
    stated = identify(argv=words, files=user_files(tmp_path))
    for name, value in parse_text(expected, "").values.items():
        assert stated.values[name] == value
    assert not stated.alone
    assert not stated.doubts


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("rl: dpo\n", {"objective": "preference"}),
        ("reward_model: true\n", {"objective": "preference"}),
        ("unfrozen_parameters:\n- ^lm_head\n", {"frozen": "part"}),
        ("bf16: auto\ntf32: true\n", {}),
    ],
)
def test_what_axolotl_trains(tmp_path: Path, text: str, options: dict[str, str]) -> None:
    plain = "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 2\nfsdp_version: 2\n"
    (tmp_path / "c.yml").write_text(plain + text)
    stated = identify(argv=("axolotl", "train", "c.yml"), files=user_files(tmp_path))
    assert dict(stated.values.get("options", ())) == options
    assert stated.values["sharding"] == "fsdp"
    assert "precision" not in stated.values


def test_how_torchtune_and_litgpt_adapt(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_rank: 8,"
        " quantize_base: true, apply_lora_to_mlp: true}\n"
        "teacher_model: {_component_: torchtune.models.llama3.llama3_70b}\n"
    )
    found = identify(argv=TUNE.split(), files=user_files(tmp_path)).values
    told = {"lora", "lora_rank", "lora_targets", "objective", "quantized_base"}
    assert {key for key, _ in found["options"]} == told
    argv = ["litgpt", "finetune_lora", "gpt2", "--lora_r", "8", "--lora_mlp", "true"]
    assert ("lora_targets", "all") in identify(argv=argv).values["options"]


TUNE = "tune run lora_finetune_distributed --config c.yaml"


def test_adapters_that_a_program_has_only_where_it_is_asked_are_no_question(tmp_path: Path) -> None:
    option = 'parser.add_argument("--model.lora_rank", type=int, default={})\n'
    for rank, asks in ((0, False), (8, True)):
        (tmp_path / "mine.py").write_text(option.format(rank) + "m = get_peft_model(m, c)\n")
        argv = ("python", "mine.py", *VISION.split(), "--amp")
        stated = identify(argv=argv, files=user_files(tmp_path))
        assert any(problem.field == "options" for problem in stated.problems) == asks


ARGUMENTS = "args = TrainingArguments('out', num_train_epochs={epochs}, bf16=True)\n"
NET = "net = AutoModelForCausalLM.from_pretrained({name})\n"
MINE = {"epochs": 3, "precision": Precision.MIXED_BF16_FP32}
PART = "p.add_argument('--epochs', default=7)\n" + ARGUMENTS.format(epochs="args.epochs")


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        (ARGUMENTS.format(epochs=3), "", MINE),
        (NET.format(name="'gpt2'") + ARGUMENTS.format(epochs=3), "", {"model": "gpt2-124m"} | MINE),
        ("N = 3\n" + ARGUMENTS.format(epochs="N"), "", MINE),
        ("N = 3\nN = 4\n" + ARGUMENTS.format(epochs="N"), "", {"precision": MINE["precision"]}),
        ("def main():\n  " + ARGUMENTS.format(epochs=3) + "main()\n", "", MINE),
        ("def idle():\n  " + ARGUMENTS.format(epochs=3), "", {}),
        ("if sys.argv[1:]:\n  " + ARGUMENTS.format(epochs=3), "", {}),
        ("if __name__ == '__main__':\n  " + ARGUMENTS.format(epochs=3), "", MINE),
        ("for fold in range(5):\n  " + ARGUMENTS.format(epochs=3), "", {}),
        (ARGUMENTS.format(epochs=3) * 2, "", {}),
        ("# " + ARGUMENTS.format(epochs=3), "", {}),
        (f"'''{ARGUMENTS.format(epochs=3)}'''\n".replace("'out', ", ""), "", {}),
        (ARGUMENTS.format(epochs=3) + "args.num_train_epochs = 5\n", "", MINE | {"epochs": None}),
        (ARGUMENTS.format(epochs=3), "--num_train_epochs 5", MINE | {"epochs": 5}),
        (PART, "--epochs 5", MINE | {"epochs": 5}),
        (PART, "", MINE | {"epochs": 7}),
        (PART.replace("7", "f()"), "", MINE | {"epochs": None}),
        (NET.format(name="name") + ARGUMENTS.format(epochs=3), "", MINE),
        (NET.format(name="'gpt2'") * 2 + ARGUMENTS.format(epochs=3), "", MINE),
        ("t = pl.Trainer(max_epochs=4, precision='bf16-mixed')\n", "", MINE | {"epochs": 4}),
        ("t = Trainer(net, epochs=4)\n", "", {}),
        (
            "YOLO('yolov8n.pt').train(data='coco.yaml', epochs=4, batch=16, imgsz=640)\n",
            "",
            {"model": "yolov8n", "epochs": 4, "global_batch_size": 16, "image_size": (640, 640)},
        ),
        ("net.train(data=data, epochs=4, batch=16)\n", "", {}),
        ("TrainingArguments(" + "(" * 5000, "", {}),
    ],
)
def test_what_a_program_tells_its_only_trainer(
    tmp_path: Path, text: str, flags: str, told: dict[str, object]
) -> None:
    (tmp_path / "train.py").write_text(text)
    argv = ("python", "train.py", *flags.split())
    stated = identify(argv=argv, files=user_files(tmp_path))
    found = {"model": stated.model} if stated.model else {}
    found |= {k: v for k, v in stated.values.items() if k in ("epochs", "precision")}
    found |= {k: v for k, v in stated.values.items() if k in ("global_batch_size", "image_size")}
    assert found == {key: value for key, value in told.items() if value is not None}


def test_a_home_that_is_known_is_gone_to(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "c.json").write_text('{"per_device_train_batch_size": 8}')
    script = "#!/bin/bash\ncd ~/mine\npython train.py --model gpt2 --config c.json\n"
    for home, told in (({"HOME": str(tmp_path)}, 8), ({}, None)):
        stated = identify(script=script, environment=home, files=user_files(tmp_path))
        assert stated.values.get("batch_size") == told


def test_adapters_that_a_program_makes_are_asked_for_beside_other_options(tmp_path: Path) -> None:
    made = ARGUMENTS.format(epochs=3).replace("bf16", "gradient_checkpointing=True, bf16")
    (tmp_path / "train.py").write_text(f"{made}net = get_peft_model(net, config)\n")
    for flags, asks in (("", True), ("--use_lora", False)):
        argv = ("python", "train.py", *flags.split())
        stated = identify(argv=argv, files=user_files(tmp_path))
        assert ("act_ckpt", "on") in stated.values["options"]
        assert any(doubt.field == "options" for doubt in stated.doubts) == asks


def test_a_program_that_generates_between_its_steps_has_not_their_time(tmp_path: Path) -> None:
    argv = ("python", "train.py", "--model", "gpt2", "--batch_size", "4", "--epochs", "3")
    for made, read in (("OwnGRPOTrainer(config)", False), ("Trainer(config)", True)):
        (tmp_path / "train.py").write_text(f"trainer = {made}\ntrainer.train()\n")
        assert bool(identify(argv=argv, files=user_files(tmp_path)).values) == read


@pytest.mark.parametrize(
    ("word", "sharding"), [("true", "fsdp"), ("FULL_SHARD", "fsdp"), ("false", None)]
)
def test_the_second_fsdp_of_accelerate(tmp_path: Path, word: str, sharding: str | None) -> None:
    told = "fsdp_version: 2, fsdp_activation_checkpointing: true"
    file = f"fsdp_config: {{{told}, fsdp_reshard_after_forward: {word}}}\n"
    (tmp_path / "fsdp.yaml").write_text(file)
    argv = f"accelerate launch --config_file fsdp.yaml train.py {VISION}"
    stated = identify(argv=tuple(argv.split()), files=user_files(tmp_path))
    assert stated.values.get("sharding") == sharding
    assert ("act_ckpt", "on") in stated.values["options"]
