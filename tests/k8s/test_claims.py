"""Dynamic resource allocation, by what a real API server sent."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from admission_reviews import ALWAYS, STATED, applied
from api_server_stand_in import CLASSES, SLICES, eventually, served
from gpu_claims import ATTRIBUTES, GPUS, gpu_slice, of, payload, wanted
from k8s_configs import config_of, pod_job
from kubernetes.client import ApiClient

from k8s_extender.admission import Admission
from k8s_extender.admission.review import AdmissionRequest
from k8s_extender.claims import Devices, with_devices
from k8s_extender.config import Config
from k8s_extender.decide import Decider
from k8s_extender.nodes import GpuNode
from predictor.estimate.fitting import Fitted

BF16 = {
    f"precision-time.io/{k}": v for k, v in {"model": "bert-large", "precision": "bf16"}.items()
}


@pytest.fixture
def devices() -> Devices:
    found = Devices(ApiClient(), Config())
    for name in GPUS:
        found.slice(gpu_slice(name))
    found.device_class(payload("deviceclass"))
    return found


@pytest.fixture
def known(fitted: Fitted, devices: Devices) -> Decider:
    nodes = with_devices({name: GpuNode(name, None) for name in GPUS}, devices)
    return Decider(fitted.predictor, config_of(ALWAYS), lambda: nodes)


def test_slices_that_are_gone_are_of_no_node(devices: Devices) -> None:
    assert devices.types.keys() == GPUS.keys()
    devices._all_slices(iter(()))
    assert not devices.types


def order(
    devices: Devices,
    known: Decider,
    *listed: dict[str, Any],
    stated: dict[str, str] = STATED,
    command: tuple[str, ...] = ("python", "train.py"),
) -> list[str]:
    """The names of what a claim lists after its review."""
    review = payload("generated-resourceclaim-admissionreview-request")
    review["request"]["object"]["spec"]["devices"]["requests"][0]["firstAvailable"] = list(listed)
    pod = payload("pod-with-claim")
    pod["metadata"]["annotations"] = stated
    pod["spec"]["containers"][0]["command"] = list(command)

    def claim(body: bytes) -> bytes:
        return Admission(lambda: known).claim(body, partial(devices.in_order, pod))

    class Claims:
        review = staticmethod(claim)

    found = applied(Claims(), review)  # type: ignore[arg-type]
    (request,) = found.object["spec"]["devices"]["requests"]
    assert sorted(map(str, request["firstAvailable"])) == sorted(map(str, listed))
    return [one["name"] for one in request["firstAvailable"]]


def test_slices_tell_the_gpus_of_nodes_without_labels(devices: Devices) -> None:
    kind = devices.types["h100"]
    assert kind.gpu is not None
    assert (kind.gpu.name, kind.count) == ("h100-sxm5-80gb", 4)
    assert kind.memory_bytes == 81559 * 2**20
    labelled = GpuNode("h100", devices.types["a100"])
    assert with_devices({"h100": labelled}, devices)["h100"] is labelled
    gone = gpu_slice("h100")
    devices.slice(gone, 1.0)
    assert "h100" not in devices.types


def test_slices_of_other_drivers_and_mig_devices_are_left_out() -> None:
    found = Devices(ApiClient(), Config())
    other, mig = gpu_slice("h100"), gpu_slice("a100")
    other["spec"]["driver"] = "gpu.example.com"
    for device in mig["spec"]["devices"]:
        device["attributes"]["type"] = {"string": "mig"}
    found.slice(other)
    found.slice(mig)
    assert found.types == {}


def test_a_list_is_ordered_by_what_is_predicted(devices: Devices, known: Decider) -> None:
    assert order(devices, known, of("v100"), of("h100"), of("a100")) == ["h100", "a100", "v100"]
    assert order(devices, known, of("h100"), of("v100")) == ["h100", "v100"]


def test_what_the_job_cannot_run_on_comes_last(devices: Devices, known: Decider) -> None:
    many = of("v100", count=8)
    assert order(devices, known, many, of("a100"), stated=BF16) == ["a100", "v100"]


def test_more_of_a_slower_gpu_may_come_first(devices: Devices, known: Decider) -> None:
    listed, launcher = (
        (of("h100"), of("a100", count=8)),
        ("torchrun", "--nproc_per_node=gpu", "t.py"),
    )
    assert order(devices, known, *listed, command=launcher) == ["a100", "h100"]
    assert order(devices, known, *listed) == ["h100", "a100"]  # one process trains on one GPU


@pytest.mark.parametrize("stated", [{}, {"precision-time.io/model": "my-net"}])
def test_without_a_prediction_the_users_order_stays(
    devices: Devices, known: Decider, stated: dict[str, str]
) -> None:
    assert order(devices, known, of("v100"), of("h100"), stated=stated) == ["v100", "h100"]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (f"{ATTRIBUTES}.productName.lowerAscii().contains('h100')", {"h100"}),
        (f"{ATTRIBUTES}.productName == 'Tesla V100-SXM2-16GB'", {"v100"}),
        (f"{ATTRIBUTES}.productName.startsWith('NVIDIA')", {"h100", "a100"}),
        ("device.driver == 'gpu.nvidia.com'", {"h100", "a100", "v100"}),
        (
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('70Gi')) >= 0",
            {"h100", "a100"},
        ),
        (
            f"{ATTRIBUTES}.type == 'gpu' && {ATTRIBUTES}.architecture == 'Volta'",
            {"v100"},
        ),
        (f"{ATTRIBUTES}.architecture == 'Hopper' || true", None),
        (f"{ATTRIBUTES}.architecture != 'Hopper'", None),
        (f"{ATTRIBUTES}.cudaComputeCapability.isGreaterThan(semver('7.9.9'))", None),
        (f"{ATTRIBUTES}.colour == 'red'", None),
        ("false", None),
    ],
)
def test_selectors_are_read_or_the_list_stays(
    devices: Devices, expression: str, names: set[str] | None
) -> None:
    found = devices.chosen(wanted(expression))
    told = None if names is None else {devices.types[name].product for name in names}
    assert (found if found is None else {kind.product for kind in found}) == told


def test_a_class_that_is_not_known_chooses_nothing(devices: Devices) -> None:
    assert devices.chosen(wanted() | {"deviceClassName": "other"}) is None
    devices.device_class(payload("deviceclass"), 1.0)
    assert devices.chosen(wanted()) is None


def test_an_extended_resource_of_a_class_is_priced_on_the_slices(
    devices: Devices, known: Decider
) -> None:
    limits = {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "2"}}
    pod = {"metadata": {"annotations": STATED}, "spec": {"containers": [{"resources": limits}]}}
    job = pod_job(pod, known.config)
    assert job is not None
    found = known.prioritize(job, list(GPUS))
    assert found.score("h100") > found.score("a100") > found.score("v100") > 0


def named(name: str, resource: str, expression: str, born: str) -> dict[str, Any]:
    """The captured class, with another name, selector and age."""
    found = payload("deviceclass")
    found["metadata"] |= {"name": name, "creationTimestamp": born}
    found["spec"] = {
        "extendedResourceName": resource,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return found


HOPPER = f"{ATTRIBUTES}.architecture == 'Hopper'"
OTHERS = f"{ATTRIBUTES}.architecture == 'Volta'"
UNREAD = f"{ATTRIBUTES}.architecture != 'Volta'"


@pytest.mark.parametrize(
    ("classes", "places"),
    [
        ([("fast", HOPPER, 1)], {"h100"}),
        ([("fast", HOPPER, 1), ("slow", OTHERS, 2)], {"v100"}),  # the newer of one name
        ([("fast", HOPPER, 2), ("slow", OTHERS, 1)], {"h100"}),
        ([("fast", UNREAD, 1)], set(GPUS)),  # not read: any
        ([], set(GPUS)),
    ],
)
def test_a_resource_named_by_a_class_is_of_the_gpus_that_it_chooses(
    devices: Devices,
    fitted: Fitted,
    classes: list[tuple[str, str, int]],
    places: set[str],
) -> None:
    for name, expression, age in classes:
        born = f"2026-11-0{age}T00:00:00Z"
        devices.device_class(named(name, "example.com/fast", expression, born))
    nodes = with_devices({name: GpuNode(name, None) for name in GPUS}, devices)
    found = {name for name, node in nodes.items() if node.type_for("example.com/fast")}
    assert found == places
    assert {name for name, node in nodes.items() if node.type_for("nvidia.com/gpu")} == set(GPUS)


def test_slices_classes_and_the_pod_come_from_the_api_server() -> None:
    with served() as cluster:
        for path, found in ((SLICES, gpu_slice("h100")), (CLASSES, payload("deviceclass"))):
            cluster.put(copy.deepcopy(found), path)
        pod = payload("pod-with-claim") | {"status": {}}
        cluster.pods["default", "w2"] = pod
        devices = Devices(cluster.client(), Config(), retry_s=0.01)
        devices.start()
        try:
            assert eventually(lambda: "h100" in devices.types)
            assert eventually(lambda: devices.chosen(wanted()) is not None)
            cluster.put(gpu_slice("a100"), SLICES)
            assert eventually(lambda: "a100" in devices.types)
            raw = payload("generated-resourceclaim-admissionreview-request")["request"]
            request = AdmissionRequest("u", "", "ResourceClaim", "CREATE", raw["object"])
            assert devices.claimed_by(request)["metadata"]["name"] == pod["metadata"]["name"]
            cluster.pods.clear()
            assert devices.claimed_by(request) == {}
        finally:
            devices.stop()
