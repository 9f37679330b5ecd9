"""A real Prometheus: the dashboards' queries, the alerts, and what GPUs did, read back from it.

Debian's package; with ``prometheus`` in PRECISION_TIME_REQUIRE a missing one is a failure, not a
skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from click.testing import CliRunner

from predictor.cli.main import main
from predictor.site.capacity.measured import read_measured
from predictor.site.history.ingest import Period

from ..slurm.processes import free_ports

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[3]
FILES = ROOT / "charts" / "precision-time" / "files"
REPORT = (
    "capacity report --from profiles/samples/history.csv.gz --since 2025-02-01 --until 2025-03-01"
    " --gpus v100-sxm2-16gb:24/8 --gpus a100-sxm4-80gb:24/8 --gpus h100-sxm5-80gb:24/8"
)
# As dcgm-exporter writes them, with the job of an HPC mapping; the second GPU does nothing.
DCGM = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",Hostname="n1",hpc_job="4711"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1",Hostname="n1",hpc_job="4711"} 0
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0",Hostname="n1",hpc_job="4711"} 40960
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",device="nvidia0",Hostname="n1",hpc_job="4711"} 250
"""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def gauges(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The gauges of a report on the sample data."""
    folder = tmp_path_factory.mktemp("gauges")
    words = [*REPORT.split(), "--prometheus", str(folder / "gauges.prom")]
    words += ["--output", str(folder / "report.html")]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return (folder / "gauges.prom").read_text("utf-8")


@pytest.fixture(scope="module")
def prometheus(gauges: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; it scrapes the gauges and a DCGM exporter, and has loaded the alerts."""
    program = shutil.which("prometheus")
    if program is None:
        wanted = "prometheus" in os.environ.get("PRECISION_TIME_REQUIRE", "").split()
        (pytest.fail if wanted else pytest.skip)("Prometheus is not installed")
    folder, texts = tmp_path_factory.mktemp("prometheus"), {"/gauges": gauges, "/dcgm": DCGM}

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(texts[self.path].encode())

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    target = {"static_configs": [{"targets": [f"127.0.0.1:{exporter.server_port}"]}]}
    scraped = [{"job_name": path[1:], "metrics_path": path, **target} for path in texts]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    rules = [str(FILES / "capacity-alerts.yaml")]
    config = {"global": every, "rule_files": rules, "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [program, f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
    command.append(f"--storage.tsdb.path={folder}/data")
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://{address}"
    try:
        until = time.monotonic() + PATIENCE_S
        while not (answers(url) and result(url, "count(up == 1) == 2")):
            assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield url
    finally:
        started.terminate()
        started.wait(PATIENCE_S)
        exporter.shutdown()
        exporter.server_close()


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=5):
            return True
    except OSError:
        return False


def result(url: str, query: str) -> list[dict[str, Any]]:
    with urlopen(f"{url}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:
        told = json.load(answer)
    assert told["status"] == "success"
    found: list[dict[str, Any]] = told["data"]["result"]
    return found


def queries(name: str) -> list[str]:
    """What the panels of a dashboard ask, at a rate interval of five minutes."""
    panels = json.loads((FILES / name).read_text("utf-8"))["panels"]
    all_panels = [*panels, *(inner for one in panels for inner in one.get("panels", []))]
    asked = [target["expr"] for one in all_panels for target in one.get("targets", [])]
    return [text.replace("$__rate_interval", "5m") for text in asked]


def test_every_query_of_the_capacity_dashboard_has_an_answer(prometheus: str) -> None:
    asked = queries("capacity-dashboard.json")
    assert len(asked) > 25
    silent = [query for query in asked if not result(prometheus, query)]
    # Nothing of the sample is ever full, and its jobs were not predicted when they were submitted.
    assert all("saturation" in query or "prediction_error" in query for query in silent), silent


def test_prometheus_understands_every_query_of_the_extender_s_dashboard(prometheus: str) -> None:
    asked = queries("dashboard.json")
    assert len(asked) > 15
    for query in asked:
        result(prometheus, query)


def test_alerts_are_loaded_and_evaluated(prometheus: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        with urlopen(f"{prometheus}/api/v1/rules", timeout=30) as answer:
            (group,) = json.load(answer)["data"]["groups"]
        health = {rule["name"]: rule["health"] for rule in group["rules"]}
        if set(health.values()) == {"ok"} or time.monotonic() > until:
            break
        time.sleep(0.2)
    assert set(health.values()) == {"ok"}, health
    firing = {rule["name"] for rule in group["rules"] if rule["state"] != "inactive"}
    assert "GpuReportStale" not in firing


def test_what_gpus_did_is_read_back(prometheus: str) -> None:
    now = time.time()
    (use,) = read_measured(prometheus, Period(since_s=now - 600, until_s=now))
    assert (use.job, use.measured, use.idle) == ("4711", 2, 1)
    assert use.utilisation == pytest.approx(0.45)
    assert (use.gpu_memory_bytes, use.watts) == (40 * 2**30, 250)
