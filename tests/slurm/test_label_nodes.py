"""What `label-nodes` prints: lines an admin can copy, and features that placement reads back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from profiles.gpus import find_gpu, gpus
from slurm_plugin.cli import nodes as gpu_nodes
from slurm_plugin.cli.nodes import NodeGpu, NvmlNode, label, label_nodes, lines, type_name
from slurm_plugin.cluster import GpuGres, SlurmNode
from slurm_plugin.config import SlurmHardware, SlurmPlacement, SlurmPolicy
from slurm_plugin.errors import InstallError
from slurm_plugin.install import checks
from slurm_plugin.install.site import SlurmSite
from slurm_plugin.nodes import gpu_of
from slurm_plugin.sources.text import SlurmSource

NAMES = {str(key): name for key, name in SlurmPlacement().features.items()}


class FakeError(Exception):
    """Stands for pynvml.NVMLError."""


@dataclass
class Part:
    name: str


@dataclass
class Device:
    name: str
    minor: int
    mig: bool | None = None  # None: the GPU knows no MIG
    parts: list[Part] = field(default_factory=list)


@dataclass
class FakeNvml:
    """A driver with the functions of nvidia-ml-py, under their real names."""

    devices: list[Device]
    broken: str = ""
    running: bool = False
    NVMLError: type[Exception] = FakeError

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise FakeError(self.broken)
        self.running = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.running = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        return self.devices[index]

    def nvmlDeviceGetName(self, handle: Device | Part) -> str:  # noqa: N802
        return handle.name

    def nvmlDeviceGetMinorNumber(self, handle: Device) -> int:  # noqa: N802
        return handle.minor

    def nvmlDeviceGetMigMode(self, handle: Device) -> list[int]:  # noqa: N802
        if handle.mig is None:
            raise FakeError("Not Supported")
        return [int(handle.mig), int(handle.mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Device) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> Part:  # noqa: N802
        if index >= len(device.parts):
            raise FakeError("Not Found")
        return device.parts[index]


def seen(product: str, count: int = 1, first: int = 0) -> tuple[NodeGpu, ...]:
    return tuple(NodeGpu(product, first + i) for i in range(count))


def text(node: NvmlNode) -> list[str]:
    return list(lines(label(node, NAMES)))


def test_the_fake_driver_has_only_functions_that_the_real_module_has() -> None:
    pynvml = pytest.importorskip("pynvml")
    used = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert len(used) > 8
    assert all(hasattr(pynvml, name) for name in [*used, "NVMLError"])


def test_eight_a100_are_one_line_each_for_slurm_conf_and_gres_conf() -> None:
    nvml = FakeNvml([Device("NVIDIA A100-SXM4-80GB", i, mig=False) for i in range(8)])
    printed = text(gpu_nodes.read_node(nvml, "gpu01"))
    assert "NodeName=gpu01 Gres=gpu:a100:8 Feature=a100,ampere,cc80,tensorcore,bf16,tf32" in printed
    assert "NodeName=gpu01 Name=gpu Type=a100 File=/dev/nvidia[0-7]" in printed
    told = [line for line in printed if "gpu_types: {a100: a100-sxm4-80gb}" in line]
    assert len(told) == 1
    assert told[0].startswith("# ")
    assert not nvml.running


def test_features_are_those_the_data_sheet_proves() -> None:
    h100 = label(NvmlNode("h", seen("NVIDIA H100 80GB HBM3")), NAMES).features
    v100 = label(NvmlNode("v", seen("Tesla V100-SXM2-16GB")), NAMES).features
    p100 = label(NvmlNode("p", seen("Tesla P100-PCIE-16GB")), NAMES).features
    assert set(h100) >= {"hopper", "cc90", "tensorcore", "bf16", "tf32", "fp8"}
    assert set(v100) & {"tensorcore", "bf16", "tf32", "fp8"} == {"tensorcore"}
    assert not set(p100) & {"tensorcore", "bf16", "tf32", "fp8"}


def test_feature_names_are_those_of_the_policy() -> None:
    labels = label(NvmlNode("v", seen("Tesla V100-SXM2-16GB")), {**NAMES, "tensor_core": "tc"})
    assert "tc" in labels.features
    assert "tensorcore" not in labels.features


def test_every_known_gpu_gets_a_type_that_placement_reads_back_as_the_same_gpu() -> None:
    for gpu in gpus().values():
        labels = label(NvmlNode("n", seen(gpu.product)), NAMES)
        name = labels.gres[0].split(":")[1]
        for told in (GpuGres(name, 1), GpuGres(None, 1)):
            node = SlurmNode(name="n", features=frozenset(labels.features), gpus=(told,))
            assert gpu_of(node, told, SlurmHardware()) is find_gpu(gpu.product)
        assert not name[0].isdigit()


def test_gaps_in_the_device_numbers_are_kept() -> None:
    node = NvmlNode("n", (*seen("NVIDIA L4", 2), *seen("NVIDIA L4", 1, first=4)))
    assert "NodeName=n Name=gpu Type=l4 File=/dev/nvidia[0-1,4]" in text(node)


def test_two_kinds_of_gpu_on_a_node_are_two_types() -> None:
    node = NvmlNode("n", (*seen("NVIDIA L4", 1), *seen("NVIDIA A40", 2, first=1)))
    labels = label(node, NAMES)
    assert labels.gres == ("gpu:l4:1", "gpu:a40:2")
    assert labels.gres_lines[1].endswith("Type=a40 File=/dev/nvidia[1-2]")


def test_mig_instances_are_counted_as_the_parts_they_are_and_slurm_finds_their_files() -> None:
    parts = [Part(f"NVIDIA A100-SXM4-80GB MIG {p}") for p in ("3g.40gb", "3g.40gb", "1g.10gb")]
    nvml = FakeNvml([Device("NVIDIA A100-SXM4-80GB", 0, mig=True, parts=parts)])
    labels = label(gpu_nodes.read_node(nvml, "n"), NAMES)
    assert labels.gres == ("gpu:a100_3g.40gb:2", "gpu:a100_1g.10gb:1")
    assert labels.gres_lines == ("NodeName=n AutoDetect=nvml",)
    assert any("MIG" in remark for remark in labels.remarks)


def test_a_gpu_in_mig_mode_without_instances_gives_nothing_and_says_so() -> None:
    nvml = FakeNvml([Device("NVIDIA A100-SXM4-80GB", 0, mig=True)])
    labels = label(gpu_nodes.read_node(nvml, "n"), NAMES)
    assert labels.gres == ()
    assert any("without instances" in remark for remark in labels.remarks)


def test_an_unknown_gpu_is_named_with_what_to_do() -> None:
    with pytest.raises(InstallError, match=r"'Voodoo 2'.*hardware\.gpu_types"):
        label(NvmlNode("n", seen("Voodoo 2")), NAMES)


def test_a_node_without_gpu_is_an_error() -> None:
    with pytest.raises(InstallError, match="n has no GPU"):
        label(NvmlNode("n", ()), NAMES)


def test_without_a_driver_the_reason_of_nvml_is_told() -> None:
    with pytest.raises(InstallError, match=r"Driver Not Loaded.*on a node with"):
        gpu_nodes.read_node(FakeNvml([], broken="Driver Not Loaded"), "login1")


def test_the_command_prints_the_lines_of_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([Device("NVIDIA H200", i) for i in range(4)])
    monkeypatch.setattr(gpu_nodes, "import_module", lambda name: nvml)
    monkeypatch.setattr(gpu_nodes.socket, "gethostname", lambda: "gpu07.site.org")
    done = CliRunner().invoke(label_nodes)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == text(NvmlNode("gpu07", seen("NVIDIA H200", 4)))


def test_the_shortest_clear_name_becomes_the_type() -> None:
    assert type_name(find_gpu("NVIDIA A100-SXM4-80GB")) == "a100"
    assert type_name(find_gpu("NVIDIA A100-SXM4-40GB")) != "a100"


def test_check_names_the_gpus_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*types: str) -> str:
        nodes = [SlurmNode(name="n1", gpus=tuple(GpuGres(type_, 4) for type_ in types))]
        monkeypatch.setattr(SlurmSource, "nodes", lambda _: nodes)
        return checks._gpus(SlurmPolicy(), SlurmSite(conf=Path("slurm.conf"), text=""))

    assert check("a100", "t4").startswith("a100 is a100-sxm4-80gb, one of 5 (hardware.gpu_types")
    assert check("t4") == "t4 is t4-16gb"
    with pytest.raises(InstallError, match=r"^abacus: say what they are in hardware.gpu_types"):
        check("a100", "abacus")
    with pytest.raises(InstallError, match=r"^gpu of n1: .*hardware.node_gpus$"):
        check("a100", "")
