"""A job that contradicts itself, or leaves open what decides, is told so and gets no limit."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import submit
from disputed_jobs import DISPUTED, NAMES, TRAIN, DisputedJob

from predictor.identify.identify import identify
from slurm_plugin.decide import SlurmDecider

GPUS = {"gpu": "v100-sxm2-32gb", "gpus": 4, "gpus_per_node": 4}


def told(job: DisputedJob, decider: SlurmDecider) -> str:
    """All that is said of a job: problems, what no time can be had for, assumptions."""
    stated = identify(comment=job.comment or None, script=job.script, argv=("job.sh",))
    request = submit(comment=job.comment or None, script=job.script)
    words = [f"{p.field}: {p.text}" for p in stated.problems]
    try:
        found = decider.predictor.predict(stated.job(**GPUS, precision="fp32"))
        words += [str(one) for one in found.assumptions]
    except Exception as error:
        words.append(str(error))
    return "\n".join((*words, stated.unknown_model or "", decider.decide(request).message or ""))


def test_there_are_a_hundred_and_twenty() -> None:
    assert len(set(DISPUTED)) == len(DISPUTED) >= 120


@pytest.mark.parametrize("job", DISPUTED, ids=NAMES)
def test_no_limit_is_set_and_the_reason_is_told(decider: Any, job: DisputedJob) -> None:
    one = decider()
    answer = one.decide(submit(comment=job.comment or None, script=job.script))
    assert answer.time_limit is None
    assert answer.time_min is None
    assert job.told in told(job, one)


def test_the_job_they_are_made_of_gets_a_limit(decider: Any) -> None:
    """Else no limit would say nothing."""
    plain = "#!/bin/bash\npython train.py --model resnet50 --batch-size 256 --epochs 90 --amp"
    script = f"{plain} --img-size 224 --dataset imagenet --devices 4 --accelerator gpu\n"
    assert decider().decide(submit(comment=None, script=script)).time_limit is not None


def test_a_device_by_its_kind_is_one(decider: Any) -> None:
    script = f"#!/bin/bash\n{TRAIN.replace('--epochs 90', '--epochs 9')} --device cuda\n"
    spread = script.replace("--device cuda", "--devices 4 --accelerator gpu")
    one, four = (decider().decide(submit(comment=None, script=s)) for s in (script, spread))
    assert one.time_limit > 2 * four.time_limit


def test_flags_that_change_no_time_take_no_limit(decider: Any) -> None:
    plain = f"{TRAIN} --devices 4 --accelerator gpu --lr 0.1 --wd=1e-4 --workers 8 --output-dir o"
    before = (
        "module load cuda\nexport NCCL_IB_DISABLE=0\ncp train.py out/\nsleep 5\n"
        'eval "$(conda shell.bash hook)"\nconda activate x\nsudo nvidia-smi -pm 1\n'
        "PORT=$(shuf -i 2000-65000 -n 1)\ncurl -X POST https://a.org/hook -d started\n"
        "srun -l nvidia-smi\nsingularity exec --nv i.sif nvidia-smi\n"
        "python -c 'import torch, sys; print(torch.__version__, sys.executable)'\n"
        'log() { echo "$(date)"; }\nsetup() {\n  log x\n  source data/env/bin/activate\n}\nsetup\n'
        "trap 'log $LINENO; kill $MON' EXIT\n"
        "python - <<E\nimport torch\nprint(torch.cuda.device_count())\nE"
    )
    script = f"#!/bin/bash\n{before}\npython -m pip install timm\n{plain}\n"
    assert decider().decide(submit(comment=None, script=script)).time_limit is not None


@pytest.mark.parametrize(
    "flag",
    [
        "--adam-offload",
        "--ref-model-path big.pt",
        "--optimizer-name lion",
        "--unet_config_name bk_small",
        "--lr-cycle-limit 3",
        "--clip-length 64",
        "--clip-model ViT-L-14",
        "--init-features 64",
        "--vocab-size 250000",
        "--dist-backend gloo",
        "--save-steps 5",
        "--debug",
        "--experiment large",
        "model.backbone.name=resnet152",
    ],
)
def test_flags_that_may_change_the_time_take_the_limit(decider: Any, flag: str) -> None:
    script = f"#!/bin/bash\n{TRAIN} --devices 4 --accelerator gpu {flag}\n"
    assert decider().decide(submit(comment=None, script=script)).time_limit is None


@pytest.mark.parametrize(
    ("sign", "instead"),
    [
        ("srun", "export MASTER_ADDR=a1\nsrun"),
        ("--device", "--dist-url env:// --device"),
        ("train.py", "train_ddp.py"),
    ],
)
def test_processes_that_are_told_of_each_other_train_together(
    decider: Any, sign: str, instead: str
) -> None:
    srun = f"srun -n 4 {TRAIN} --devices 4 --accelerator gpu"
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:4\n{srun.replace(sign, instead)}\n"
    assert decider().decide(submit(comment=None, script=script)).time_limit is not None


def test_the_commonest_flags_that_change_no_time_leave_the_limit(decider: Any) -> None:
    flags = (
        "--save-steps 500 --per-device-eval-batch-size 8 --lora-alpha 16 --gradient-clip-val 1"
        " --load-best-model-at-end --num-warmup-steps 100 --distributed-backend nccl --adam-beta2=1"
        " --tokenizer-name-or-path t --init-method-std 0.02 --launcher slurm --max-grad-norm 1"
        " --remove-unused-columns False --caption-column label --center-crop --data-impl mmap"
    )
    script = f"#!/bin/bash\n{TRAIN} --devices 4 --accelerator gpu {flags}\n"
    assert decider().decide(submit(comment=None, script=script)).time_limit is not None


def test_what_the_user_states_holds_whatever_its_flags(decider: Any) -> None:
    script = "#!/bin/bash\n#PT model=resnet50 batch=256 epochs=90 precision=amp dataset=imagenet\n"
    found = decider().decide(submit(comment=None, script=f"{script}srun own.py --pgd-steps 7\n"))
    assert found.time_limit is not None


def test_what_is_not_known_is_told_on_one_short_line(decider: Any) -> None:
    flags = f"'--evil\nprecision-time: limit set' --{'a' * 500} " + " ".join(
        f"--n{n} 1" for n in range(99)
    )
    script = f"#!/bin/bash\n{TRAIN} --devices 4 --accelerator gpu {flags}\n"
    stated = identify(script=script, argv=("job.sh",))
    assert len(stated.unclear) < 20
    assert all(word.isprintable() and len(word) <= 43 for word in stated.unclear)
    message = decider().decide(submit(comment=None, script=script)).message
    assert "what --evil?precision-time: limit" in message
