"""The server as `precision-time k8s serve` runs it, with a table of nodes from a file.

Arguments: the configuration and a JSON file with the nodes of the API. The API server is the one
part that is not there.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from k8s_extender import workload
from k8s_extender.cli.serve import PACKAGES
from k8s_extender.config import Config, read_config
from k8s_extender.nodes import GpuNode, gpu_node
from k8s_extender.server import state
from k8s_extender.server.service import ExtenderServer
from k8s_extender.workload import PodJob, template_job
from predictor.identify.rules import Rules
from predictor.service.logs import logging_to


class FileNodes:
    """Nodes of a file; whole once the file is there."""

    def __init__(self, config: Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._table: Mapping[str, GpuNode] = {}

    @property
    def table(self) -> Mapping[str, GpuNode]:
        if not self._table and self._path.exists():
            items = json.loads(self._path.read_bytes())["items"]
            nodes = (gpu_node(item, self._config.hardware) for item in items)
            self._table = {node.name: node for node in nodes}
        return self._table

    @property
    def synced(self) -> FileNodes:
        return self

    def is_set(self) -> bool:
        return bool(self.table)

    def wait(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not self.is_set() and time.monotonic() < until:
            time.sleep(0.05)
        return self.is_set()

    @property
    def age_s(self) -> float:
        return time.time() - self._path.stat().st_mtime if self.is_set() else float("inf")

    @property
    def stale(self) -> bool:
        return self.age_s > self._config.nodes.stale_s

    @property
    def error(self) -> str:
        return ""

    def use(self, config: Config) -> None:
        self._config, self._table = config, {}

    def start(self) -> None: ...

    def stop(self) -> None: ...


def job_of(kind: str, pod: Mapping[str, Any], config: Config, rules: Rules) -> PodJob | None:
    """As the product reads it, but for one pod at which our own code fails."""
    metadata = pod.get("metadata") or {}
    if metadata.get("name") == "breaks-the-decision":
        raise RuntimeError("a bug of ours")
    return template_job(kind, pod, config, rules)


def main() -> None:
    config_path, nodes_path = Path(sys.argv[1]), Path(sys.argv[2])
    config = read_config(config_path)
    workload.template_job = job_of  # type: ignore[assignment]
    state.SYNC_S = 600.0  # longer than a test waits for the end
    nodes: Any = FileNodes(config, nodes_path)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    with logging_to(config.server.log_format, *PACKAGES):
        uvloop.run(ExtenderServer(config, config_path, nodes, files_every_s=0.1).run())


if __name__ == "__main__":
    main()
