"""GPUs whose answers are on record: heat, others' work, power, clocks, memory and parts of one."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recorded_gpu import RECORDS, RecordedNvml

from predictor.errors import ProfilerError
from predictor.measure.profiler import device, nvml
from predictor.measure.profiler.device import Device, gpu_sheet, opened
from predictor.measure.profiler.nvml import Sensors, Watched
from predictor.measure.profiler.timing import CpuTimer

GPU = torch.device("cuda", 0)


@pytest.fixture(params=RECORDS)
def record(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return RECORDS[request.param]


def sensors_of(record: Mapping[str, Any], **changes: list[Any]) -> Sensors:
    return Sensors(RecordedNvml(record, **changes), None, 0)


def test_readings_are_those_on_record_and_none_where_nvml_refuses(
    record: Mapping[str, Any],
) -> None:
    reading, sensors = sensors_of(record).reading(), sensors_of(record)
    assert reading.sm_clock_mhz == record["sm_mhz"]
    assert reading.memory_clock_mhz == record["memory_mhz"]
    assert reading.temperature_c == record["celsius"]
    for found, watts in (
        (reading.power_w, record["watts"]),
        (reading.power_limit_w, record["limit_watts"]),
    ):
        assert found == (None if watts is None else pytest.approx(watts))
    assert sensors.ecc() is record["ecc"]
    assert sensors.slowed() is record["expect"]["slowed"]
    busy = sensors.busy()
    assert record["expect"]["busy"] is (None if busy is None else busy > device.BUSY)


def test_a_summary_has_what_the_gpu_says(record: Mapping[str, Any]) -> None:
    watched = Watched(sensors_of(record))
    watched.look()
    assert ("power_limit_w" in watched.summary()) is (record["limit_watts"] is not None)


@pytest.fixture
def on_record(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a recorded GPU the one of this machine: gives its NVML."""

    def put(record: Mapping[str, Any], uuid: str | None = None, **changes: list[Any]) -> Any:
        fake = RecordedNvml(record, **changes)
        facts = SimpleNamespace(
            major=9,
            minor=0,
            total_memory=80 * 2**30,
            L2_cache_size=50 * 2**20,
            multi_processor_count=132,
            **({"uuid": uuid} if uuid else {}),
        )
        monkeypatch.setattr(torch.cuda, "set_device", lambda where: None)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda where: record["says"])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: facts)
        monkeypatch.setattr(device, "copy_gb_per_s", lambda *_: 2000.0)
        monkeypatch.setattr(device, "gpu_peaks", lambda *_: {"fp32": 50.0, "fp16_tensor": 500.0})
        monkeypatch.setattr(device, "CudaTimer", lambda cuda: CpuTimer(1))
        monkeypatch.setattr(nvml, "import_module", lambda name: fake)
        monkeypatch.setattr(device, "sleep", lambda seconds: None)
        monkeypatch.setattr(device, "PATIENCE_S", 0.05)
        return fake

    return put


def here() -> Device:
    with opened(GPU, "measured") as found:
        return found


def test_a_gpu_gets_its_name_and_one_in_use_is_refused(
    record: Mapping[str, Any], on_record: Any
) -> None:
    on_record(record)
    if record["expect"]["busy"]:
        with pytest.raises(ProfilerError, match=r"cuda:0' is busy 65% of the time"):
            here()
    else:
        assert here().sheet.device == record["expect"]["device"]


def test_what_ran_before_is_waited_for(on_record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_record(RECORDS["rtx3080_in_use"], percent_busy=[65, 65, 30, 3])
    monkeypatch.setattr(device, "PATIENCE_S", 60.0)
    assert here().sheet.device == "rtx3080-10gb"


def test_a_gpu_that_says_little_has_a_sheet_without_it(on_record: Any) -> None:
    record = RECORDS["hopper_without_power"]
    on_record(record)
    entry = gpu_sheet(GPU, CpuTimer(1), sensors_of(record), "measured").entry
    assert entry is not None
    assert (entry["tdp_w"], entry["pcie_gb_per_s"], entry["nvlink_gb_per_s"]) == (0.0, 0.0, 0.0)
    assert entry["boost_clock_mhz"] == 1980


def test_a_part_of_a_gpu_is_found_by_its_own_name_and_is_no_whole_one(on_record: Any) -> None:
    """Its name as NVIDIA's guide to MIG has it; what it may be asked is on no record."""
    silent = dict.fromkeys(RECORDS["a100_in_parts"])
    part = {**silent, "says": "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "uuid": "MIG-1-2-3"}
    fake = on_record(part, uuid="1-2-3")
    sheet = here().sheet
    assert fake.asked_for == ["GPU-1-2-3", "MIG-1-2-3"]
    assert sheet.device.startswith("nvidia-a100-sxm4-40gb-mig-3g")
    assert sheet.entry is not None
    assert sheet.entry["sms"] == 132
