"""The lines between hook and daemon: what one side writes the other reads, whatever users write."""

from __future__ import annotations

import random
from typing import Any

import pytest
from captured_jobs import SCRIPT, VERSIONS, jobs, partitions
from lua_hook import JOB, PARTITIONS, Hook

from predictor.identify.keys import ALIASES
from slurm_plugin.protocol import MAX_REQUEST_BYTES, HookAnswer, HookRequest, parse_request

TEXTS = ("name", "comment", "extra", "features", "work_dir", "user_name", "script")
PIECES = (
    b"&",
    b"=",
    b"%",
    b"%41",
    b"%zz",
    b"+",
    b" ",
    b"\n",
    b"\r\n",
    b"\0",
    b"'",
    b'"',
    b"\\",
    b"\t",
    b";",
    b"#",
    b"`id`",
    b"$(id)",
    b"]]",
    b"--",
    b"%s%n",
    b"&uid=0",
    b"\nv=1&uid=0",
    b"v=2",
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\x80",
    "é".encode(),
    "模型".encode(),
    "🙂".encode(),
    b"\xc2\x9b",
    b"\x1b[2J",
    b"model=resnet50",
    b"precision=amp",
    b"\x7f",
)


def fuzzed(rng: random.Random) -> bytes:
    """Text of a user who means no good."""
    pieces = (rng.choice(PIECES) if rng.random() < 0.8 else rng.randbytes(3) for _ in range(12))
    return b"".join(pieces)[: rng.randrange(0, 60)]


def read(line: str) -> HookRequest:
    """The request a line of the harness holds."""
    return parse_request(line.encode("latin-1"))


def lines(hook: Hook, asked: list[dict[str, Any]], **given: Any) -> list[str]:
    """The request lines of jobs."""
    parts = given.pop("parts", PARTITIONS)
    made: list[str] = hook.call("submit_lines", jobs=asked, parts=parts, **given)["lines"]
    return made


def test_every_text_a_user_can_write_arrives_as_written(hook: Hook) -> None:
    rng = random.Random(7)
    asked: list[dict[str, Any]] = [
        {
            **{name: fuzzed(rng) for name in TEXTS},
            "user_id": 21001,
            "argc": 2,
            "argv": {0: fuzzed(rng), 1: fuzzed(rng)},
            "environment": {"PRECISION_TIME": fuzzed(rng), "SECRET": b"no"},
        }
        for _ in range(1500)
    ]
    for job, line in zip(asked, lines(hook, asked), strict=True):
        assert line.count("\n") == 1
        request = read(line)
        told = {name: getattr(request, "user" if name == "user_name" else name) for name in TEXTS}
        assert told == {name: job[name].decode("utf-8", "replace") for name in TEXTS}
        assert request.argv == tuple(w.decode("utf-8", "replace") for w in job["argv"].values())
        assert request.environment == {
            "PRECISION_TIME": job["environment"]["PRECISION_TIME"].decode("utf-8", "replace")
        }
        assert (request.uid, request.within) == (21001, 30)


def test_every_answer_the_daemon_can_give_arrives_as_given(hook: Hook) -> None:
    rng = random.Random(11)
    answers = [
        HookAnswer(
            log=fuzzed(rng).decode("utf-8", "replace"),
            message=fuzzed(rng).decode("utf-8", "replace"),
            time_limit=rng.randrange(1, 10**8),
            ttl_s=rng.randrange(100),
            features="(a|b*2)&[c|d]&!e",
        )
        for _ in range(1500)
    ]
    read_back = hook.call("read_answers", lines=[a.encode() for a in answers])["answers"]
    for answer, told in zip(answers, read_back, strict=True):
        assert told.get("log", "").encode("latin-1").decode() == answer.log
        assert told.get("message", "").encode("latin-1").decode() == answer.message
        assert (told["time_limit"], told["ttl_s"]) == (answer.time_limit, answer.ttl_s)
        assert told["features"] == answer.features


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_of_real_slurm_arrive_with_all_they_ask_for(hook: Hook, version: str) -> None:
    asked = jobs(version)
    made = lines(hook, list(asked.values()), parts=partitions(version))
    requests = dict(zip(asked, map(read, made), strict=True))
    separator = ":" if version == "2205" else "/"
    assert requests["tres"].tres_per_node == f"gres{separator}gpu:2"
    assert requests["tres"].features == "tensorcore"
    assert (requests["tres"].time_limit, requests["tres"].time_min) == (30, 10)
    assert requests["gpus"].tres_per_job == f"gres{separator}gpu:4"
    assert (requests["gpus"].min_nodes, requests["gpus"].max_nodes) == (2, 2)
    assert requests["gpustask"].tres_per_task is not None
    assert requests["gpustask"].num_tasks == 2
    assert requests["gpussock"].sockets_per_node == 2
    assert requests["prefer"].prefer == "a100"
    assert requests["inf"].time_limit == float("inf")
    assert [p.name for p in requests["multi"].partitions] == ["gpu", "short"]
    plain = requests["plain"]
    assert (plain.uid, plain.user, plain.account) == (21001, "u1", "lab1")
    assert (plain.comment, plain.script) == ("from-script", SCRIPT)
    assert plain.argv == ("/srv/slurm/work/b.sh", "arg1", "arg 2")
    assert plain.environment == {"PRECISION_TIME_MODEL": "vgg16"}
    assert plain.time_limit is None
    assert requests["srun1"].environment == {}


def test_partitions_come_with_their_times(hook: Hook) -> None:
    default, several = map(read, lines(hook, [JOB, {**JOB, "partition": "nolimit,short,gone"}]))
    assert [(p.name, p.default_min, p.max_min) for p in default.partitions] == [("gpu", 1440, 2880)]
    assert [(p.name, p.default_min, p.max_min) for p in several.partitions] == [
        ("nolimit", None, None),
        ("short", 10, 30),
    ]
    assert several.partition == "nolimit,short,gone"
    assert default.usable_partitions == ("gpu", "nolimit", "short")


def test_every_key_of_the_grammar_can_come_from_the_environment(hook: Hook) -> None:
    known_to_slurm = {"gpu", "gpus", "gpus_per_node"}
    names = {f"PRECISION_TIME_{key.upper()}" for key in ALIASES.keys() - known_to_slurm}
    stated = dict.fromkeys([*names, "PRECISION_TIME"], "x")
    job = {**JOB, "script": SCRIPT, "environment": {**stated, "PRECISION_TIME_HOME": "y"}}
    assert read(lines(hook, [job])[0]).environment == stated


def test_the_environment_is_read_for_batch_jobs_only(hook: Hook) -> None:
    assert hook.submit(environment={"PRECISION_TIME": "x"}).environment_faults == 0


def test_identical_jobs_give_identical_lines(hook: Hook) -> None:
    parts = {f"p{n}": PARTITIONS["short"] for n in range(40)} | {"gpu": PARTITIONS["gpu"]}
    backwards = dict(reversed(parts.items()))
    assert lines(hook, [JOB], parts=parts) == lines(hook, [JOB], parts=backwards)


def test_a_long_script_is_cut_where_asked(hook: Hook) -> None:
    job = {**JOB, "script": "#!/bin/bash\n" * 500_000}
    assert read(lines(hook, [job])[0]).script == ("#!/bin/bash\n" * 500_000)[:65536]


@pytest.mark.parametrize("byte", [b"%", b"\xe9", b"\n", b"x"])
def test_no_line_is_longer_than_the_daemon_reads(hook: Hook, byte: bytes) -> None:
    job: dict[str, Any] = {
        **JOB,
        "script": byte * 200_000,
        "argv": {0: byte * 16000},
        "argc": 1,
        "req_nodes": byte * 16000,
        "work_dir": byte * 4000,
        "comment": byte * 4000,
    }
    line = lines(hook, [job], max_script=200_000)[0]
    assert len(line) <= MAX_REQUEST_BYTES
    request = read(line)
    assert request.script
    assert set(request.script) == set(byte.decode("utf-8", "replace"))


def test_a_request_too_long_even_without_its_script_is_not_sent(hook: Hook) -> None:
    job: dict[str, Any] = dict.fromkeys(("name", "comment", "extra", "features"), "%" * 4096)
    job |= dict.fromkeys(("prefer", "reservation", "work_dir", "partition"), "%" * 4096)
    job |= dict.fromkeys(("account", "qos", "admin_comment"), "%" * 4096)
    job |= dict.fromkeys(("req_nodes", "exc_nodes"), "%" * 16000)
    job |= {"argv": {0: "%" * 16000}, "argc": 1, "script": "x"}
    assert lines(hook, [job]) == ["refused: the request is too long"]


def test_a_text_slurm_will_refuse_is_not_sent(hook: Hook) -> None:
    assert lines(hook, [{**JOB, "comment": "x" * 5_000_000}]) == ["refused: comment is too long"]
    called = hook.submit(comment="x" * 5000)
    assert called.written == {}
    assert "comment is too long outcome=skipped" in called.log()


def test_many_arguments_are_cut_and_stay_within_the_fields_the_daemon_reads(hook: Hook) -> None:
    job = {**JOB, "argv": {n: f"--flag{n}" for n in range(5000)}, "argc": 5000}
    assert read(lines(hook, [job])[0]).argv == tuple(f"--flag{n}" for n in range(256))
