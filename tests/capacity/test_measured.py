"""What GPUs really did: from a Prometheus behind HTTP, and from what jobstats writes."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from capacity_jobs import START_S, frame, job

from predictor.errors import HistoryError
from predictor.site.capacity.jobs import jobs_of
from predictor.site.capacity.measured import (
    measured_jobs,
    read_measured,
    use_by_user,
    wasteful,
)
from predictor.site.capacity.report_data import WasteKind
from predictor.site.history.ingest import Period

PERIOD = Period(since_s=START_S, until_s=START_S + 86_400)
A100 = "a100-sxm4-80gb"
BLANK = "9.223372036854776e+18"  # what DCGM gives for a value it does not have
# The GPUs of the jobs: metric, labels, value. Labels as dcgm-exporter writes them with an HPC
# mapping, and as Prometheus renames those of pods.
POD = {
    "namespace": "gpu",
    "pod": "dcgm",
    "exported_namespace": "lab",
    "exported_pod": "train-0-x7k2p",
    "UUID": "GPU-5",
}
SERIES = (
    *(("DCGM_FI_DEV_GPU_UTIL", {"hpc_job": "1", "UUID": f"GPU-{g}"}, "90") for g in range(2)),
    *(("DCGM_FI_DEV_GPU_UTIL", {"hpc_job": "1", "UUID": f"GPU-{g}"}, "0") for g in (2, 3)),
    ("DCGM_FI_DEV_GPU_UTIL", {"hpc_job": "2", "UUID": "GPU-0"}, "100"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", {"hpc_job": "2", "UUID": "GPU-0"}, "0.002"),
    ("DCGM_FI_DEV_FB_USED", {"hpc_job": "2", "UUID": "GPU-0"}, "40960"),
    ("DCGM_FI_DEV_POWER_USAGE", {"hpc_job": "2", "UUID": "GPU-0"}, "250"),
    ("DCGM_FI_DEV_POWER_USAGE", {"hpc_job": "1", "UUID": "GPU-0"}, BLANK),
    ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "GPU-9"}, "0"),  # nobody's
    (
        "DCGM_FI_DEV_GPU_UTIL",
        POD,
        "1",
    ),
)


class Prometheus(BaseHTTPRequestHandler):
    """The HTTP API of Prometheus as far as instant queries go (prometheus.io, HTTP API)."""

    asked: ClassVar[list[dict[str, list[str]]]] = []

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        self.asked.append(query)
        result = [
            {"metric": labels, "value": [START_S, value]}
            for name, labels, value in SERIES
            if f"({name}[" in query["query"][0]
        ]
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        self.send_response(200 if address.path == "/api/v1/query" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Prometheus)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def jobs(*rows: dict[str, Any]) -> Any:
    return jobs_of(frame(rows), PERIOD)


def test_jobs_are_measured_by_prometheus(prometheus: str) -> None:
    Prometheus.asked.clear()
    found = {use.job: use for use in read_measured(prometheus, PERIOD)}
    assert all(query["query"][0].endswith("[86400s])") for query in Prometheus.asked)
    assert {query["time"][0] for query in Prometheus.asked} == {str(PERIOD.until_s)}
    assert found.keys() == {"1", "2", "lab/train"}
    assert (found["1"].measured, found["1"].idle) == (4, 2)
    assert found["1"].utilisation == pytest.approx(0.45)
    assert found["1"].watts is None
    assert (found["2"].gpu_memory_bytes, found["2"].watts) == (40 * 2**30, 250)


def test_asked_used_and_idle_stand_beside_each_other(prometheus: str) -> None:
    table = measured_jobs(
        jobs(
            job(gpus=4, gpu_type=A100, predicted_median_s=1800.0),
            job(job_id="2", gpu_type=A100),
            job(job_id="3"),
            job(job_id="u-1", scheduler="kubernetes", account="lab", name="train", user="bob"),
        ),
        read_measured(prometheus, PERIOD),
    )
    ada, bob = use_by_user(table)
    assert (ada.user, ada.jobs, ada.gpu_hours) == ("ada", 2, pytest.approx(5))
    assert ada.used_gpu_hours == pytest.approx(4 * 0.45 + 1)
    assert ada.idle_gpu_hours == pytest.approx(2)
    assert ada.predicted_gpu_hours == pytest.approx(2)
    assert ada.gpu_memory_share == pytest.approx(0.5)
    assert ada.kwh == pytest.approx(0.25)
    assert (bob.jobs, bob.predicted_gpu_hours, bob.kwh) == (1, None, None)
    waste = {(one.job_id, one.kind): one.wasted_gpu_hours for one in wasteful(table)}
    assert waste == {
        ("1", WasteKind.SOME_IDLE): pytest.approx(2),
        ("u-1", WasteKind.IDLE): pytest.approx(1),
        ("2", WasteKind.NO_TENSOR_CORES): pytest.approx(1),
    }


def comment(told: object) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(told).encode())).decode()


def test_comments_of_jobstats_are_read_and_others_say_nothing(tmp_path: Path) -> None:
    node = {
        "cpus": 12,
        "gpu_total_memory": {"1": 85899345920},
        "gpu_used_memory": {"1": 83314868224},
        "gpu_utilization": {"1": 98.6},
        "total_memory": 137438953472,
        "total_time": 57620.8,
        "used_memory": 13743895347,
    }
    rows = {
        "1": comment({"gpus": 1, "nodes": {"della-k1g1": node}, "total_time": 50944}),
        "2": "JS1:Short",
        "3": "JS1:bm9uc2Vuc2U=",
        "4": "precision-time: 3 h",
        "5": comment({"nodes": {"n": {"total_memory": 4, "used_memory": 1}}}),
    }
    path = tmp_path / "comments.txt"
    path.write_text("JobID|AdminComment\n" + "".join(f"{k}|{v}\n" for k, v in rows.items()))
    [use] = read_measured(str(path), PERIOD)
    assert (use.job, use.measured, use.idle) == ("1", 1, 0)
    assert use.utilisation == pytest.approx(0.986)
    assert use.host_memory_share == pytest.approx(0.1, rel=1e-3)
    [waste] = wasteful(measured_jobs(jobs(job(gpu_type=A100)), [use]))
    assert (waste.kind, waste.wasted_gpu_hours) == (WasteKind.HOST_MEMORY, 0)


@pytest.mark.parametrize("source", ["http://127.0.0.1:9", "missing.txt"])
def test_what_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(HistoryError, match=source.rpartition("/")[2]):
        read_measured(source, PERIOD)


def test_a_table_without_comments_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|State\n1|COMPLETED\n")
    with pytest.raises(HistoryError, match="AdminComment"):
        read_measured(str(path), PERIOD)
