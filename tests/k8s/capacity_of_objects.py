"""The capacity commands about the objects of an API server, and what those add up to themselves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner
from object_sums import Object, Row, gpus_of, rows_of, window_of

from predictor.cli.main import main

SPLITS = ("account", "user", "partition", "gpu_type")
REPORT = ("capacity", "report")


@dataclass(frozen=True, slots=True)
class Share:
    """Jobs of one account, or of another split, and their GPU-seconds by outcome."""

    jobs: int
    gpu_s: dict[str, int]


Sums = dict[str, dict[str, Share]]


def command(*words: str) -> Any:
    """What a command says as JSON."""
    done = CliRunner().invoke(main, [*words, "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def told(report: Any) -> Sums:
    """What a report says, of all and by every split."""
    everything = {"": Share(report["origin"]["jobs"], _seconds(report["hours"]))}
    return {"all": everything} | {
        split: {
            part["key"]: Share(part["jobs"], _seconds(part["hours"]))
            for part in report["splits"][split]
        }
        for split in SPLITS
    }


def added_up(rows: Sequence[Row]) -> Sums:
    """The same of rows; the namespace stands for the user."""
    keys = {split: {getattr(row, split) for row in rows} for split in SPLITS}
    return {"all": {"": _share(rows)}} | {
        split: {key: _share([row for row in rows if getattr(row, split) == key]) for key in found}
        for split, found in keys.items()
    }


def report_of(objects: Sequence[Object]) -> Any:
    """What ``capacity report`` says of the day of a site."""
    return command(*REPORT, "--from", "kubernetes", *window_of(objects).words)


def sums_of(objects: Sequence[Object]) -> Sums:
    """What it has to say."""
    return added_up(rows_of(objects, window_of(objects)))


def waiting(objects: Sequence[Object]) -> dict[str, int]:
    """GPUs of what the scheduler cannot place, and of Jobs that wait to be let in, by name."""
    pods = {
        _named(o): gpus_of(o["spec"])
        for o in objects
        if o["kind"] == "Pod" and "nodeName" not in o["spec"]
    }
    return pods | {
        o["metadata"]["name"]: gpus_of(o["spec"]["template"]["spec"])
        for o in objects
        if o["kind"] == "Job" and o["spec"].get("suspend")
    }


def running(objects: Sequence[Object]) -> dict[str, int]:
    """GPUs of the pods that run, by the name of the Job or pod."""
    sums: Counter[str] = Counter()
    for pod in objects:
        if pod["kind"] == "Pod" and pod["status"]["phase"] == "Running":
            sums[_named(pod)] += gpus_of(pod["spec"])
    return dict(sums)


def _named(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences", ())
    return str(owners[0]["name"] if owners else pod["metadata"]["name"])


def _share(rows: Sequence[Row]) -> Share:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row.outcome] += row.gpu_s
    return Share(len(rows), {outcome: gpu_s for outcome, gpu_s in sums.items() if gpu_s})


def _seconds(hours: dict[str, float]) -> dict[str, int]:
    return {name: round(3600 * value) for name, value in hours.items() if value}
