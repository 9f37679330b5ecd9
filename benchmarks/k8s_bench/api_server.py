"""The API server of the benchmark: nodes to watch, any pod to annotate. ``api_server.py NODES``."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from k8s_bench.payloads import nodes, uid_of
from tests.k8s.api_server_stand_in import StandIn


class AnyPod(dict[tuple[str, str], dict[str, Any]]):
    """Every pod of the benchmark is there, and none is kept."""

    def get(self, key: tuple[str, str], _: object = None) -> Any:
        """The pod of a namespace and name."""
        return {"metadata": {"name": key[1], "uid": uid_of(int(key[1].rpartition("-")[2]))}}


def main(count: int) -> None:
    """Serve this many nodes on a free port of the loopback, which is printed."""
    stand_in = StandIn()
    stand_in.fill(nodes(count))
    stand_in.pods = AnyPod()
    stand_in.start()
    print(stand_in.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
