"""Fills a history from the sacct of a directory, and tells figures of it as JSON.

python fill.py BIN_DIR HISTORY SINCE_S UNTIL_S ROWS
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from predictor.site.history.ingest import Tally, fill
from predictor.site.history.store import History
from slurm_plugin.config import Slurm, SlurmPolicy
from slurm_plugin.history.ingest import records

EARLY = 0.1  # of the rows


def main(bin_dir: str, history: str, since_s: str, until_s: str, count: str) -> int:
    """Print seconds, rows, and resident memory after a tenth of the rows and at the end."""
    policy = SlurmPolicy(slurm=Slurm(bin_dir=Path(bin_dir), command_timeout_s=600.0))
    memory: dict[str, int] = {}

    def told(tally: Tally) -> None:
        if tally.records >= EARLY * int(count):
            memory.setdefault("early_bytes", resident_bytes())

    with History.open(history) as store:
        began, processor, waited = time.perf_counter(), time.process_time(), waited_s()
        found = records(policy, float(since_s), float(until_s))
        tally = fill(store, found, cursor="slurm:bench", since_s=float(since_s), told=told)
        wall_s = time.perf_counter() - began
    figures = {
        "wall_s": wall_s,
        "processor_s": time.process_time() - processor,
        "waited_s": waited_s() - waited,
        "end_bytes": resident_bytes(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps({**figures, **memory, **tally.as_dict()}))
    return 0


def waited_s() -> float:
    """How long this process could have run, and had no core to run on."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def resident_bytes() -> int:
    """What of this process is in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
