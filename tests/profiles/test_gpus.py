"""Any name in use finds the right data sheet, and the data sheets agree with themselves."""

from __future__ import annotations

import pytest

from profiles.errors import ProfileDataError, UnknownGpuError
from profiles.gpus import find_gpu, gpus

# FP32 lanes of one SM by compute capability (CUDA C++ Programming Guide, arithmetic throughput).
LANES = {
    (3, 5): 192,
    (3, 7): 192,
    (5, 2): 128,
    (6, 0): 64,
    (6, 1): 128,
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 3): 128,
    (12, 0): 128,
    # of a compute unit of AMD, from its data sheets
    (9, 8): 64,
    (9, 10): 64,
    (9, 42): 128,
    (9, 50): 128,
}


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("nvidia_a100-sxm4-80gb", "a100-sxm4-80gb"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("nvidia_a100_80gb_pcie", "a100-pcie-80gb"),
        ("NVIDIA-A100-80GB-PCIe-SHARED", "a100-pcie-80gb"),
        ("tesla_v100-sxm2-16gb", "v100-sxm2-16gb"),
        ("Tesla-V100-PCIE-32GB", "v100-pcie-32gb"),
        ("Tesla V100-SXM3-32GB-H", "v100-sxm3-32gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("nvidia_h100_pcie", "h100-pcie-80gb"),
        ("nvidia_geforce_rtx_3090", "rtx3090-24gb"),
        ("GeForce RTX 2080 Ti", "rtx2080ti-11gb"),
        ("NVIDIA-RTX-6000-Ada-Generation", "rtx6000ada-48gb"),
        ("titan-rtx-24gb", "titanrtx-24gb"),
        ("V100", "v100-sxm2-16gb"),
        ("p100", "p100-pcie-16gb"),
        ("GB300", "gb300-279gb"),
        ("AMD_Instinct_MI300X_OAM", "mi300x-192gb"),
        ("a100_80", "a100-sxm4-80gb"),
        ("v100-32", "v100-sxm2-32gb"),
        ("NVIDIA A100-SXM-64GB", "a100-sxm4-64gb"),
        ("NVIDIA GeForce RTX 5090 D", "rtx5090d-32gb"),
    ],
)
def test_spellings_of_nvml_kubernetes_slurm_and_sources_are_understood(
    spelling: str, name: str
) -> None:
    assert find_gpu(spelling).name == name


def test_every_listed_name_finds_its_own_entry() -> None:
    for gpu in gpus().values():
        for name in (gpu.name, gpu.product, *gpu.aliases):
            assert find_gpu(name) is gpu, name
            assert find_gpu(name.upper()) is gpu, name


def test_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(UnknownGpuError, match="a100-sxm4-80gb") as caught:
        find_gpu("a100-sxm5-80gb")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, ProfileDataError)
    assert caught.value.nearest[0] == "a100-sxm4-80gb"


def test_fp32_peak_is_what_its_lanes_do_at_boost_clock() -> None:
    for name, gpu in gpus().items():
        lanes = gpu.sms * LANES[gpu.compute_capability]
        peak = pytest.approx(2 * lanes * gpu.boost_clock_hz, rel=0.04)
        assert (name, gpu.peak_flops["fp32"]) == (name, peak)


def test_geforce_tensor_cores_accumulate_in_fp32_at_half_rate() -> None:
    assert find_gpu("rtx3090").peak_flops["fp16_tensor"] == 71e12
    assert find_gpu("rtx3090").peak_flops["tf32"] == 35.6e12
    assert find_gpu("rtx4090").peak_flops["fp16_tensor"] == 165.2e12
    assert find_gpu("titan-rtx").peak_flops["fp16_tensor"] == 130.5e12


def test_volta_and_turing_have_neither_bf16_nor_tf32() -> None:
    for gpu in gpus().values():
        if gpu.compute_capability < (8, 0):
            assert not {"bf16", "bf16_tensor", "tf32"} & set(gpu.peak_flops), gpu.name


def test_memory_and_bandwidth_are_bytes() -> None:
    gpu = find_gpu("a100-sxm4-80gb")
    assert gpu.memory_bytes == 80 * 2**30
    assert gpu.bandwidth_bytes_per_s == 2.039e12
    assert gpu.l2_bytes == 40 * 2**20
