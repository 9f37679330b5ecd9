"""All places together: which goes first, and what the user is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from predictor.errors import JobError
from predictor.identify.files import user_files
from predictor.identify.identify import MAX_PROBLEMS, identify
from predictor.identify.rules import RuleContext, Rules


def test_places_go_before_each_other_in_their_order() -> None:
    stated = identify(
        comment="model=resnet50",
        extra="model=vgg11 batch=1",
        environment={"PRECISION_TIME": "model=vgg11 batch=2 epochs=2"},
        script="#PT model=vgg11 batch=3 epochs=3 image=160\npython train.py --model vgg11 --amp",
        annotations={"precision-time.io/job": "model=vgg11 optimizer=lamb epochs=4"},
    )
    assert {name: stated.origins[name] for name in stated.values} == {
        "model": "comment",
        "batch_size": "extra",
        "epochs": "environment",
        "image_size": "#PT",
        "precision": "script",
        "optimizer": "annotation",
    }
    assert stated.values["image_size"] == (160, 160)


def test_nothing_written_is_nothing_said() -> None:
    stated = identify(rules=Rules(), context=RuleContext())
    assert not stated.values
    assert not stated.problems


def test_the_axes_of_an_image_wait_for_the_model() -> None:
    stated = identify(
        comment="image=96", script="python train.py --model unet3d-medical --batch-size 2"
    )
    assert stated.values["image_size"] == (96, 96, 96)


def test_problems_are_told_once_and_the_decisive_first() -> None:
    text = "model=resnet50 optimizer=x1 fabric=x2 gpu=x3 framework=x4 sharding=x5 batch=x6"
    stated = identify(comment=text, extra=text)
    assert len(stated.problems) == MAX_PROBLEMS
    assert stated.problems[0].field == "batch_size"
    assert len(set(stated.problems)) == MAX_PROBLEMS


def test_a_model_only_the_catalog_of_the_user_has_keeps_its_name() -> None:
    stated = identify(comment="model=our-net batch=8", script="python train.py --model vgg16")
    assert stated.model is None
    assert stated.unknown_model == "our-net"


def test_importing_it_is_cheap() -> None:
    code = (
        "import sys, predictor.identify.identify; "
        "print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'joblib'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


CONTRADICTED = [
    (
        "precision=amp",
        "--model resnet50 --batch-size 256 --precision fp32",
        "precision",
    ),
    ("epochs=9", "--model resnet50 --batch-size 256 --epochs 90 --amp", "epochs"),
    ("batch=64", "--model resnet50 --batch-size 256 --amp", "batch_size"),
    ("model=resnet18", "--model resnet50 --batch-size 256 --epochs 90 --amp", "model"),
]


@pytest.mark.parametrize(("comment", "flags", "field"), CONTRADICTED)
def test_what_the_script_says_otherwise_is_told(comment: str, flags: str, field: str) -> None:
    script = f"#!/bin/bash\npython train.py {flags}\n"
    found = identify(comment=comment, script=script)
    assert [p.field for p in found.contradictions] == [field]
    assert "no limit" in found.contradictions[0].text
    assert ".0" not in found.contradictions[0].text  # 9 epochs, not 9.0
    assert not identify(script=script).contradictions


def test_lines_for_us_that_the_commands_contradict_carry_no_limit() -> None:
    stated = identify(script="#PT model=resnet50\ntorchrun train.py --model resnet101 -b 8 --amp\n")
    assert (stated.model, stated.contradictions[0].field) == ("resnet50", "model")
    assert not identify(script="#PT epochs=3\ntorchrun t.py --model resnet50\n").contradictions


@pytest.mark.parametrize(("processes", "sound"), [(1, False), (4, True), (8, False)])
def test_an_accelerate_file_of_other_processes_than_gpus_carries_no_limit(
    tmp_path: Path, processes: int, sound: bool
) -> None:
    (tmp_path / "a.yaml").write_text(f"mixed_precision: bf16\nnum_processes: {processes}\n")
    script = "#!/bin/bash\n#SBATCH --gres=gpu:4\naccelerate launch --config_file a.yaml t.py -b 8\n"
    stated = identify(script=script, files=user_files(tmp_path))
    assert (not stated.contradictions) == sound


TRAIN = "train.py --model resnet50 --batch-size 64 --epochs 3 --dataset imagenet --amp"


@pytest.mark.parametrize(
    ("command", "sound"),
    [
        (f"torchrun --nproc_per_node 4 {TRAIN}", True),
        (f"torchrun --nproc_per_node 4 {TRAIN} $EXTRA", False),
        (f"torchrun --nproc_per_node 4 {TRAIN} $(cat more.txt)", False),
        (f"torchrun --nproc_per_node 4 {TRAIN} --seed $SEED", True),
        (f"srun python {TRAIN}", False),
        (f"srun -n 4 python {TRAIN}", True),
        (f"srun torchrun --nproc_per_node 4 {TRAIN}", True),
        (f"python {TRAIN} --gpus 2", False),
        (f"python {TRAIN} --gpus 4", True),
        (f"python {TRAIN} --device 0,1", False),
        (f"python {TRAIN} --device cuda", True),
        (f"srun -n 4 python {TRAIN} trainer.devices=1", False),
    ],
)
def test_no_limit_where_a_command_uses_other_gpus_or_holds_words_that_nobody_reads(
    command: str, sound: bool
) -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus=4\n{command}\n"
    assert (not identify(script=script).contradictions) == sound


def test_a_job_says_once_and_in_plain_words_what_it_lacks() -> None:
    script = "#!/bin/sh\ntorchrun train.py --model_name_or_path gpt2 --bf16 --seq-len={}\n"
    with pytest.raises(JobError, match=r"^unclear seq_len; script: invalid seq_len='-5'; expected"):
        identify(script=script.format("-5")).job(gpu="a100")
    with pytest.raises(JobError, match=r"^no gpu; state it$"):
        identify(script=script.format("512")).job()
