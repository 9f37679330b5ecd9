"""Settings of configurations: found by name, and no text is run, crashes or takes long."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.identify.configured import LEAST_READ, MAX_READ
from predictor.identify.files import MAX_SETTINGS, resolved, settings_of, user_files
from predictor.identify.identify import identify, parse_script
from predictor.identify.shell_syntax import UNKNOWN

SAME = {"a.b": "2", "a.c": "true", "d": "x"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "a: {b: 2, c: true}\nd: x\ne: null\n"),
        ("c.yml", "a:\n  b: 2\n  c: yes\nd: x\n"),
        ("c.json", '{"a": {"b": 2, "c": true}, "d": "x", "e": null}'),
        ("c.toml", "d = 'x'\n[a]\nb = 2\nc = true\n"),
        ("c.py", "a = dict(b=2, c=True)\nd: str = 'x'\nimport os\nos.abort()\n"),
    ],
)
def test_the_same_settings_in_every_form(name: str, text: str) -> None:
    assert settings_of(name, text) == SAME


def test_what_only_running_could_tell_is_unknown() -> None:
    assert settings_of("c.py", "a = 5 * x\nb = a\nc = f()\n") == dict.fromkeys("abc", UNKNOWN)
    assert settings_of("c.py", "a = 5 * 8\nb = a\n") == {"a": "40", "b": "40"}
    assert settings_of("c.py", f"a = {'9' * 4000} * 9\n") == {"a": UNKNOWN}
    told = settings_of("c.yaml", "a: ${b.c}\nd: x${a}\n") or {}
    assert resolved(told, ()) == dict.fromkeys("ad", UNKNOWN)


def test_a_setting_that_is_another_one_is_told_unless_the_command_sets_that(tmp_path: Path) -> None:
    text = "v: {length: 2048}\nmax_seq_len: ${v.length}\n"
    told = settings_of("c.yaml", text) or {}
    assert resolved(told, ()) == {"v.length": "2048", "max_seq_len": "2048"}
    (tmp_path / "c.yaml").write_text(text)
    argv = ["torchrun", "train.py", "--config", "c.yaml", "--batch_size", "8", "--model", "gpt2"]
    assert identify(argv=argv, files=user_files(tmp_path)).values["seq_len"] == 2048
    unread = identify(argv=(*argv, "v.length=64"), files=user_files(tmp_path))
    assert "seq_len" not in unread.values


@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.toml", "c.py"])
@given(text=st.text(max_size=300))
def test_any_text_is_settings_or_none(name: str, text: str) -> None:
    found = settings_of(name, text)
    assert found is None or all(isinstance(value, str) for value in found.values())


BOMB = "a: &a [[1]]\n" + "".join(
    f"b{i}: &b{i} {{p: *{'a' if i == 0 else f'b{i - 1}'}, q: *{'a' if i == 0 else f'b{i - 1}'}}}\n"
    for i in range(40)
)


MANY = "\n".join(f"k{i}: 1" for i in range(5000))
ORDINARY = "\n".join(f"part_{i}:\n  key: [1, two]" for i in range(1000))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "- " * 30_000),
        ("c.yaml", "[" * 60_000),
        ("c.yaml", BOMB),
        ("c.json", "[" * 60_000),
        ("c.json", '{"a":' * 10_000),
        ("c.py", "(" * 60_000),
        ("c.py", "x=" + "-" * 60_000 + "1"),
        ("c.toml", "a=" + "[" * 60_000),
        ("c.yaml", "a: 1\n" * 100_000),
        ("c.yaml", "!!python/object/apply:os.abort []"),
        ("c.yaml", MANY),
    ],
)
def test_hostile_texts_are_given_up(name: str, text: str) -> None:
    def read_s(name: str, text: str) -> float:
        gc.disable()  # a pass over what earlier tests left takes longer than a reading
        try:
            began = time.thread_time()
            assert len(settings_of(name, text) or ()) <= MAX_SETTINGS
            return time.thread_time() - began
        finally:
            gc.enable()

    # Twice as long at most; what is not given up takes hours.
    assert read_s(name, text) < 20 * read_s("c.yaml", ORDINARY)


def test_sections_named_for_arguments_are_plain() -> None:
    text = "training_arguments:\n  per_device_train_batch_size: 8\n  max_steps: 9\n"
    text += "data_arguments:\n  max_length: 512\nmodel_arguments:\n  optim: adamw_torch\n"
    stated = identify(argv=["python", "train.py", "-c", "a.yaml"], files={"a.yaml": text}.get)
    assert not stated.doubts
    told = {name: stated.values[name] for name in ("batch_size", "steps", "seq_len", "optimizer")}
    assert told == {"batch_size": 8, "steps": 9, "seq_len": 512, "optimizer": "adamw"}


def test_a_configuration_that_builds_on_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("_BASE_: c.yaml\nmodel: resnet50\n")
    (tmp_path / "d.yaml").write_text("".join(f"_base_: [{'d.yaml, ' * 9}d.yaml]\n"))
    files = user_files(tmp_path)
    for name in ("c.yaml", "d.yaml"):
        read = parse_script("", ("python", "train.py", "--config", name), files=files)
        assert [doubt.field for doubt in read.doubts] == ["file"]


def test_no_more_files_are_read_than_a_few() -> None:
    class Counting:
        asked = 0

        def __call__(self, path: str) -> str | None:
            self.asked += 1
            return "epochs: 1"

    files = Counting()
    words = [word for i in range(100) for word in ("--config", f"{i}.yaml")]
    parse_script("", ("python", "train.py", *words), files=files)
    assert files.asked <= MAX_READ / LEAST_READ


def test_only_small_regular_files_of_the_user_are_read(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "large.yaml").write_text("a: 1\n" * 100_000)
    (tmp_path / "small.yaml").write_text("a: 1\n")
    files = user_files(tmp_path)
    assert files("small.yaml") == "a: 1\n"
    for name in ("pipe.yaml", "large.yaml", "none.yaml", ".", "a\0b"):
        assert files(name) is None


TRAINS = "--model_name_or_path gpt2 --per_device_train_batch_size 4 --max_steps 9 --bf16"


@pytest.mark.parametrize(
    "command",
    [
        f"deepspeed run_clm.py {TRAINS} --deepspeed z3_offload.json",
        f"accelerate launch --config_file zero3.yaml run_clm.py {TRAINS}",
        f"accelerate launch --use_deepspeed --deepspeed_config_file z3.conf run_clm.py {TRAINS}",
    ],
)
def test_how_state_is_shared_is_open_until_its_file_is_read_or_a_place_says_it(
    command: str, tmp_path: Path
) -> None:
    assert [p.field for p in parse_script(command).contradictions] == ["sharding"]
    assert not identify(comment="zero=3", script=command).contradictions
    (tmp_path / "z3_offload.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "z3.conf").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "zero3.yaml").write_text("deepspeed_config: {zero_stage: 3}")
    read = parse_script(command, files=user_files(tmp_path))
    assert read.values["sharding"] == "zero3"
    assert not read.contradictions


@pytest.mark.parametrize("section", ["hardware", "system", "training", "trainer"])
def test_mixed_precision_counts_in_the_section_of_the_machine_too(section: str) -> None:
    text = f"training: {{batch_size: 8, epochs: 2}}\n{section}: {{mixed_precision: true}}\n"
    if section == "training":
        text = "training: {batch_size: 8, epochs: 2, mixed_precision: true}\n"
    found = parse_script("python train.py --config c.yaml", files=lambda _: text).values
    assert (found["batch_size"], found["epochs"]) == (8, 2)
    assert str(found["precision"]) == "mixed_fp16_fp32"


@pytest.mark.parametrize("name", ["SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "SGE_O_WORKDIR"])
def test_files_lie_where_the_job_was_submitted(tmp_path: Path, name: str) -> None:
    (tmp_path / "my.yml").write_text("base_model: gpt2\nmax_steps: 9\nmicro_batch_size: 4\n")
    script = f"cd ${name}\naxolotl train my.yml"
    assert parse_script(script, files=user_files(tmp_path)).values["steps"] == 9
