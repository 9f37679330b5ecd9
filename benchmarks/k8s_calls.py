"""Measures what the extender costs kube-scheduler, against one that does nothing, in one run.

Run with ``make bench-k8s``; exits with 1 if a goal is missed. The processes are real: `k8s serve`
as it is shipped, with a server in the place of the API server. ``--calls`` sets how many calls
the memory is watched over.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from goals import all_kept, home_of_run
from k8s_bench import servers
from k8s_bench.client import Answer, Connection
from k8s_bench.figures import BASE, TURN, Figures, Memory, goals, show
from k8s_bench.payloads import BF16, MIXED, NEW, Kind, Pods, node_names, request
from k8s_bench.servers import Certificate

SIZES = (100, 1000, 5000)
ROUNDS = 41  # the first is to warm up
NEW_PAIRS = 1  # in a round: pricing a shape takes milliseconds
CALLS = 100_000
MEMORY_NAMES = 100
SHAPES = 200
QUIET = {"annotate": {"pods": False, "events": False}}


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is asked about pods of a kind; ``path`` is where it is asked for scores."""

    connection: Connection
    kind: Kind = MIXED
    path: str = "prioritize"


class Asking:
    """Asks about one pod after another, none of them seen before."""

    def __init__(self, names: int) -> None:
        self._names = node_names(names)
        self._pods = Pods()

    def pair(self, asked: Contender) -> float:
        """Seconds of filter and prioritize, which is asked about the nodes that filter passed."""
        filtered, _, scored = self._answers(asked)
        return filtered.taken_s + scored.taken_s

    def check(self, asked: Contender) -> None:
        """See that decisions are made: an answer without one would look fast."""
        _, passed, scored = self._answers(asked)
        scores = {each["Host"]: each["Score"] for each in scored.json()}
        if list(scores) != passed or len(set(scores.values())) < 2:
            raise SystemExit(f"{asked.kind.name}: nodes were not ranked: {scored.body[:200]!r}")
        if (asked.kind is BF16) != (len(passed) < len(self._names)):
            raise SystemExit(f"{asked.kind.name}: {len(passed)} of {len(self._names)} nodes passed")

    def _answers(self, asked: Contender) -> tuple[Answer, list[str], Answer]:
        pod = self._pods.of(asked.kind)
        filtered = asked.connection.ask(request("filter", pod, self._names))
        passed = filtered.json()["NodeNames"]
        scored = asked.connection.ask(request("prioritize", pod, passed, asked.path))
        scored.json()
        return filtered, passed, scored


def measured(names: int, tls: Certificate | None, directory: Path) -> dict[str, list[float]]:
    """Seconds of pairs by kind, the kinds in turns."""
    directory.mkdir()
    with ExitStack() as stack:
        api = stack.enter_context(servers.api_server(names))
        started = (
            stack.enter_context(servers.do_nothing(tls)),
            stack.enter_context(servers.ours(directory / "quiet", api, tls, **QUIET)),
            stack.enter_context(servers.ours(directory / "writing", api, tls)),
        )
        # Not before all run: who connects and says nothing is let go.
        nothing, quiet, writing = (server.connect() for server in started)
        ours = {
            "known": Contender(quiet),
            "refused": Contender(quiet, BF16),
            "writing": Contender(writing),
            "new": Contender(quiet, NEW),
        }
        asking = Asking(names)
        for contender in ours.values():
            asking.check(contender)
        base = {"silent": Contender(nothing), BASE: Contender(nothing, path="zeros")}
        return _in_turns(asking, base | ours)


def _in_turns(asking: Asking, contenders: Mapping[str, Contender]) -> dict[str, list[float]]:
    pairs_s: dict[str, list[float]] = {kind: [] for kind in contenders}
    for turn in range(ROUNDS):
        for kind, contender in contenders.items():
            pairs = NEW_PAIRS if contender.kind is NEW else TURN
            taken = [asking.pair(contender) for _ in range(pairs)]
            if turn:
                pairs_s[kind] += taken
    return pairs_s


def watched(calls: int, directory: Path) -> Memory:
    """Memory over a number of calls, everything as by default, and then over new shapes."""
    directory.mkdir()
    with servers.api_server(MEMORY_NAMES) as api, servers.ours(directory / "ours", api) as server:
        connection, asking = server.connect(), Asking(MEMORY_NAMES)
        kinds = [Contender(connection), Contender(connection, BF16)]
        resident = []
        for _ in range(2):
            for number in range(calls // 4):
                asking.pair(kinds[number % len(kinds)])
            resident.append(server.resident_bytes)
        for _ in range(SHAPES):
            asking.pair(Contender(connection, NEW))
        added = (server.resident_bytes - resident[-1]) / SHAPES
        return Memory(calls, resident[0], resident[1], added)


def collected(calls: int) -> Figures:
    """All figures; without TLS alone where openssl is not installed."""
    figures = Figures()
    with home_of_run(), tempfile.TemporaryDirectory(prefix="precision-time-k8s-") as directory:
        os.sched_setaffinity(0, servers.CLIENT_CORES)
        root = Path(directory)
        made = servers.certificate(root)
        for tls in (None, made) if made else (None,):
            for names in SIZES:
                place = root / f"{names}-{'plain' if tls is None else 'tls'}"
                figures.pairs_s[names, tls is not None] = measured(names, tls, place)
        figures.memory.append(watched(calls, root / "memory"))
    return figures


def main() -> int:
    """Measure, print the table and the goals; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=CALLS, help=f"calls to watch the memory over [{CALLS}]"
    )
    calls = parser.parse_args().calls
    before = os.getloadavg()[0]
    figures = collected(calls)
    after = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {before:.1f} to {after:.1f}, one keep-alive connection")
    show(figures)
    if not any(tls for _, tls in figures.pairs_s):
        print("TLS was not measured: openssl is not on the PATH\n")
    for memory in figures.memory:
        print(f"memory for each new job shape: {memory.shape_bytes / 1024:.0f} KiB\n")
    return 0 if all_kept(goals(figures)) else 1


if __name__ == "__main__":
    sys.exit(main())
