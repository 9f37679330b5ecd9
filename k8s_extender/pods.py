"""What an object says of its pods: where they lie in it, their GPUs, what they run, how many.

Where they lie, so that admission can write there what was read from there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from predictor.identify.files import Files, settings_of
from predictor.identify.launch import Launch, launch_of, shell_text
from predictor.identify.shell import Command, read_script
from predictor.identify.shell_syntax import UNKNOWN
from predictor.site.similar.request import script_signature
from profiles.gpus import known_gpu
from profiles.storage import shipped_yaml

from .config import PREFIX
from .nodes import RESOURCE_PREFIX
from .plain import MOST, JsonPath, at, count, items, mapping, text

MAX_GPUS = 1024
VENDOR = "nvidia.com/"  # a cluster may name a resource for one GPU: nvidia.com/a100
# A container may ask for devices of a class by this name, as for any resource.
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
# Annotations of KAI-Scheduler: its pods ask for no resource.
KAI_FRACTION = "gpu-fraction"
KAI_DEVICES = "gpu-fraction-num-devices"
# Whole quantities as the API server keeps them; it writes the others as plain digits.
_QUANTITY = re.compile(r"\+?(\d{1,10})(?:(k|Ki)|[eE]\+?(\d{1,2}))?", re.ASCII)
_SUFFIXES = {"k": 1000, "Ki": 1024}
_FRACTION = re.compile(r"0?\.\d{1,6}|1(?:\.0{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PodGpus:
    """GPUs of one pod: ``resource`` counts them, ``fraction`` is the part of each that it gets.

    ``claimed`` where they are resource claims, of which a pod tells only the names: one GPU each is
    then no more than a guess.
    """

    resource: str
    gpus: int
    fraction: float = 1.0
    claimed: bool = False


def asked_of(
    spec: Mapping[str, Any], annotations: Mapping[str, str], resources: Iterable[str]
) -> PodGpus | None:
    """What a pod asks for; None for a pod without GPUs.

    Containers and sidecars (init containers that restart always) add up; other init containers run
    one at a time, each beside the sidecars before it. Of several resources the largest counts.
    """
    containers = (*items(spec, "containers"), *items(spec, "initContainers"))
    parts = (mapping(c, "resources", part) for c in containers for part in ("requests", "limits"))
    named = {key for part in parts for key in part if isinstance(key, str)}
    others = sorted(
        key
        for key in named - {*resources}
        if key.startswith((RESOURCE_PREFIX, DEVICE_CLASS))
        or (key.startswith(VENDOR) and known_gpu(key.removeprefix(VENDOR)) is not None)
    )
    totals = {name: _total(spec, name) for name in dict.fromkeys((*resources, *others))}
    most = max(totals, key=totals.__getitem__, default=None)
    if most is not None and 0 < totals[most] <= MAX_GPUS:
        return PodGpus(most, totals[most])
    resource = next(iter(totals), "nvidia.com/gpu")
    if claims := len(items(spec, "resourceClaims")):
        return PodGpus(resource, min(claims, MAX_GPUS), claimed=True)
    fraction, devices = annotations.get(KAI_FRACTION, ""), count(annotations, KAI_DEVICES) or 1
    if _FRACTION.fullmatch(fraction) and float(fraction) and devices <= MAX_GPUS:
        return PodGpus(resource, devices, float(fraction))
    return None


def containers_with(spec: Mapping[str, Any], resource: str) -> list[Mapping[str, Any]]:
    """The containers that ask for the resource, most first; all of them where none does."""
    containers = [c for c in items(spec, "containers") if isinstance(c, Mapping)]
    asking = [c for c in containers if _of(c, resource)]
    return sorted(asking, key=lambda c: -_of(c, resource)) or containers


def _total(spec: Mapping[str, Any], resource: str) -> int:
    beside, most = 0, 0
    for container in items(spec, "initContainers"):
        wanted = _of(container, resource)
        if text(container, "restartPolicy") == "Always":
            beside += wanted
        else:
            most = max(most, beside + wanted)
    return max(most, beside + sum(_of(c, resource) for c in items(spec, "containers")))


def _of(container: Any, resource: str) -> int:
    """Requests, or limits where there is no request: of GPUs both are equal."""
    asked = (at(container, "resources", part, resource) for part in ("requests", "limits"))
    return next((found for found in map(_whole, asked) if found is not None), 0)


def _whole(quantity: Any) -> int | None:
    """A number of GPUs: a user may write ``2e0``, and the API server leaves it so."""
    match = _QUANTITY.fullmatch(quantity) if isinstance(quantity, str) else None
    if match is None:
        return count(quantity)
    digits, suffix, exponent = match.groups()
    found = int(digits) * _SUFFIXES.get(suffix, 1) * 10 ** int(exponent or 0)
    return found if found <= MOST else None


DEADLINE = "activeDeadlineSeconds"
WORKLOAD = "Workload"
VOLCANO = "Job of Volcano"  # of the same name as batch's
# The kinds that make pods, with their API groups, and where those of Kubeflow keep replicas.
KINDS: Mapping[str, Any] = shipped_yaml("kinds.yaml", __file__)
ROLES: Mapping[str, str] = KINDS["roles"]
GROUPS: Mapping[str, str] = KINDS["groups"]
LED = ("MPIJob", "RayJob")  # whose training is started apart from the pods with GPUs


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template that train together, and where their deadline stands.

    The ``template`` of a pod is the pod itself, at the empty path. ``runs`` is how many times in a
    row the deadline lets pods run: a Job with more completions than parallelism starts pods where
    others have ended. ``gpus`` are those of one pod, where they were counted. ``made`` is the
    template of a kind that holds none, as its controller makes it; nothing is written there.
    """

    template: JsonPath
    deadline: JsonPath | None
    count: int = 1
    runs: int = 1
    gpus: int = 0
    made: Mapping[str, Any] | None = None

    def of(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """The pod template in an object."""
        return mapping(obj, *self.template) if self.made is None else self.made


@dataclass(frozen=True, slots=True)
class PodSets:
    """All pods of an object.

    ``deadline_s`` is the shortest that the object states, in seconds. ``settled`` is False where
    the object may hold pods that do not train together, so that what they run tells more.
    ``script`` is a shell text that starts the training where no container does, ``launcher`` the
    template of a pod without GPUs that does.
    """

    sets: tuple[PodSet, ...]
    deadline_s: int | None = None
    settled: bool = True
    script: str = ""
    launcher: Mapping[str, Any] | None = None


def pod_sets(kind: str, obj: Mapping[str, Any]) -> PodSets | None:
    """The pods of an object by its kind; None for a kind without known pods."""
    if kind not in GROUPS:
        return None
    sets = tuple(_sets(kind, obj))
    places = dict.fromkeys(each.deadline for each in sets if each.deadline is not None)
    deadlines = [found for place in places if (found := count(obj, *place))]
    launcher = at(obj, "spec", ROLES["MPIJob"], "Launcher", "template")
    return PodSets(
        sets,
        None if kind == "Pod" else min(deadlines, default=None),
        settled=kind not in ("Pod", "Job", VOLCANO),
        script=text(obj, "spec", "entrypoint") if kind == "RayJob" else "",
        launcher=launcher if kind == "MPIJob" else None,
    )


def _sets(kind: str, obj: Mapping[str, Any]) -> Iterator[PodSet]:
    spec, deadline = mapping(obj, "spec"), ("spec", DEADLINE)
    place: JsonPath
    if kind == "Pod":
        yield PodSet((), deadline)
    elif kind == "Job":
        pods, completions = _number(spec, "parallelism"), count(spec, "completions")
        # All pods of an indexed Job that runs them at once train together.
        indexed = text(spec, "completionMode") == "Indexed" and completions in (None, pods)
        yield PodSet(("spec", "template"), deadline, pods if indexed else 1, _runs(spec))
    elif kind in ROLES:  # one policy for all roles
        for name, role in mapping(spec, ROLES[kind]).items():
            place = ("spec", ROLES[kind], name, "template")
            yield PodSet(place, ("spec", "runPolicy", DEADLINE), _number(role, "replicas"))
    elif kind == "TrainJob":  # of Kubeflow's second version: its runtime makes the pods
        trainer = mapping(spec, "trainer")
        wanted = ("image", "command", "args", "env")
        container = {key: trainer[key] for key in wanted if key in trainer}
        container["resources"] = mapping(trainer, "resourcesPerNode")
        made = {"spec": {"containers": [container]}}
        yield PodSet(("spec", "trainer"), deadline, _number(trainer, "numNodes"), made=made)
    elif kind == VOLCANO:  # has a field for its expected run time, and none for a deadline
        for i, task in enumerate(items(spec, "tasks")):
            yield PodSet(("spec", "tasks", i, "template"), None, _number(task, "replicas"))
    elif kind == "RayJob":
        place = ("spec", "rayClusterSpec")
        yield PodSet((*place, "headGroupSpec", "template"), deadline)
        for i, group in enumerate(items(obj, *place, "workerGroupSpecs")):
            pods = _number(group, "replicas")
            yield PodSet((*place, "workerGroupSpecs", i, "template"), deadline, pods)
    elif kind == "JobSet":
        for i, job in enumerate(items(spec, "replicatedJobs")):
            place = ("spec", "replicatedJobs", i, "template", "spec")
            of_job = mapping(job, "template", "spec")
            pods = _number(job, "replicas") * _number(of_job, "parallelism")
            yield PodSet((*place, "template"), (*place, DEADLINE), pods, _runs(of_job))
    else:
        for i, pods_of in enumerate(items(spec, "podSets")):
            place, limit = ("spec", "podSets", i, "template"), "maximumExecutionTimeSeconds"
            yield PodSet(place, ("spec", limit), _number(pods_of, "count"))


def _runs(job: Mapping[str, Any]) -> int:
    """Of the spec of a Job: its completions over what it runs at once."""
    completions = count(job, "completions") or 1
    return -(-completions // (count(job, "parallelism") or 1))


def _number(holder: Any, name: str) -> int:
    found = count(holder, name)
    return 1 if found is None else found


MAX_VARIABLES = 512
MAX_VALUE = 8192
MAX_WORDS = 1000
OURS = "PRECISION_TIME"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]{0,127})\)", re.ASCII)


# The data of ConfigMaps, by their name.
ConfigMaps = Mapping[str, Mapping[str, str]]
NO_MAPS: ConfigMaps = {}


@dataclass(frozen=True, slots=True)
class StartedCommand:
    """A command: ``words`` as started, ``script`` where they are ``sh -c`` with a text.

    ``environment`` holds variables with a literal value, those meant for us first.
    """

    words: tuple[str, ...]
    script: str
    environment: Mapping[str, str]


def ran_by(container: Mapping[str, Any], maps: ConfigMaps = NO_MAPS) -> StartedCommand:
    """What a container starts; arguments alone stand behind the image's unknown entry point."""
    known: dict[str, str] = {}
    hidden: set[str] = set()  # variables whose value stands elsewhere
    whole = (
        {"name": f"{text(source, 'prefix')}{key}", "value": value}
        for source in items(container, "envFrom")
        for key, value in maps.get(text(source, "configMapRef", "name"), {}).items()
    )
    for variable in [*whole, *items(container, "env")][:MAX_VARIABLES]:
        name, value = text(variable, "name"), text(variable, "value")
        if not name:
            continue
        known.pop(name, None)
        hidden.discard(name)
        key = mapping(variable, "valueFrom", "configMapKeyRef")
        told = maps.get(text(key, "name"), {}).get(text(key, "key"))
        if told is not None:
            known[name] = told[:MAX_VALUE]
        elif isinstance(variable, Mapping) and variable.get("valueFrom") is not None:
            hidden.add(name)
        else:
            known[name] = _filled(value, known, hidden)[:MAX_VALUE]
    known = {name: value for name, value in known.items() if UNKNOWN not in value}
    environment = {n: known[n] for n in sorted(known, key=lambda n: not n.startswith(OURS))}
    command = items(container, "command") or [UNKNOWN] * bool(items(container, "args"))
    given = [*command, *items(container, "args")][:MAX_WORDS]
    words = tuple(_filled(word, environment, hidden) for word in given if isinstance(word, str))
    return StartedCommand(words, shell_text(words) or "", environment)


def signature(container: Mapping[str, Any]) -> str:
    """The signature of a container's image and command; the image's tag does not count."""
    ran, image = ran_by(container), text(container, "image").partition("@")[0]
    head, slash, last = image.rpartition("/")
    words = (f"{head}{slash}{last.partition(':')[0]}", ran.script or " ".join(ran.words))
    return script_signature(" ".join(words))


def mounted(
    spec: Mapping[str, Any], container: Mapping[str, Any], maps: ConfigMaps
) -> Files | None:
    """The files that a container of a pod has from ConfigMaps; None where it has none."""
    volumes = {text(v, "name"): mapping(v, "configMap") for v in items(spec, "volumes")}
    found: dict[str, str] = {}
    for mount in items(container, "volumeMounts"):
        volume, path = volumes.get(text(mount, "name"), {}), text(mount, "mountPath")
        names = {text(i, "key"): text(i, "path") for i in items(volume, "items")}
        for key, content in maps.get(text(volume, "name"), {}).items():
            name = names.get(key, "" if names else key)
            if name and name == text(mount, "subPath"):
                found[posixpath.normpath(path)] = content
            elif name and not text(mount, "subPath"):
                found[posixpath.normpath(f"{path}/{name}")] = content
    if not found:
        return None
    start = text(container, "workingDir") or "/"
    return lambda path: found.get(posixpath.normpath(posixpath.join(start, path)))


def _filled(word: str, known: Mapping[str, str], hidden: set[str]) -> str:
    """``$(NAME)`` as the kubelet fills it in; ``$$`` is a plain ``$``."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        unset = UNKNOWN if match[1].isupper() else match[0]  # what makes the pods may set it
        return UNKNOWN if match[1] in hidden else known.get(match[1], unset)

    return _REFERENCE.sub(value, word)


MAX_PODS = 2**16
PODS = f"{PREFIX}pods"
# Nodes of torch.distributed: the operator of Kubeflow sets the first, users the second.
NODE_VARIABLES = ("PET_NNODES", "NNODES")
PROCESS_VARIABLE = "WORLD_SIZE"
TF_CONFIG = "TF_CONFIG"
TF_ROLES = ("cluster.chief", "cluster.master", "cluster.worker")
PROCESSES_A_POD = ("PET_NPROC_PER_NODE", "NPROC_PER_NODE")
NODE_FLAGS = ("--nnodes", "--num-machines", "--num-nodes")
PROCESS_FLAG = "--num-processes"
# Launchers that start the processes of one node unless told of more.
ONE_NODE = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
# Pods of a group, by what makes the group: a Job that we watch, which says it on none of its pods,
# Kueue's plain pods, LeaderWorkerSet and JobSet.
OWNER_PODS = f"{PREFIX}pods-of-owner"
JOBSET_REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
GROUP_SIZES = (
    OWNER_PODS,
    "kueue.x-k8s.io/pod-group-total-count",
    "leaderworkerset.sigs.k8s.io/size",
    JOBSET_REPLICAS,
)
KUBEFLOW = "training.kubeflow.org/job-name"
VOLCANO_POD, RANK = "volcano.sh/job-name", "RANK"
_NODES = re.compile(r"(\d{1,6})(?::\d{1,6})?", re.ASCII)


def pods_told(
    ran: StartedCommand,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    asked: PodGpus,
    *,
    together: bool,
) -> int | None:
    """How many pods a job has, as far as one of them tells.

    What the user says goes first; then, unless the object tells what trains ``together``, what
    environment and launcher say, then the owner's labels and annotations on the pod.
    """
    told = {**labels, **annotations}
    found = [count(annotations, PODS)]
    if not together:
        roles = settings_of(".json", ran.environment.get(TF_CONFIG, "")) or {}
        found += [sum(roles[role].count(";") + 1 for role in TF_ROLES if role in roles)]
        found += [_launched(ran, labels, asked), *(count(told, name) for name in GROUP_SIZES)]
    return next((pods for pods in found if pods and pods <= MAX_PODS), None)


def launches_of(ran: StartedCommand) -> Iterator[Launch]:
    """The programs that a command starts, or its script."""
    read = read_script(ran.script, ran.environment).commands
    commands = read if ran.script else (Command(ran.words, False),)
    return filter(None, (launch_of(command.words) for command in commands))


def trains_alone(ran: StartedCommand) -> bool:
    """Whether each pod trains for itself: its launcher is one of a single node, and told no other.

    So it is of a Volcano job, whose variables such a launcher does not heed.
    """
    found = list(launches_of(ran))
    told = any(not launch.started.keys().isdisjoint(NODE_FLAGS) for launch in found)
    return not told and any(not ONE_NODE.isdisjoint(launch.before) for launch in found)


def _launched(ran: StartedCommand, labels: Mapping[str, str], asked: PodGpus) -> int | None:
    """What environment and launcher say; of an elastic job's ``2:8`` nodes, the fewest."""
    flags = dict(pair for launch in launches_of(ran) for pair in launch.started.items())
    processes = count(ran.environment, PROCESS_VARIABLE)
    stated = [ran.environment.get(name, "") for name in NODE_VARIABLES]
    stated += [] if processes else [flags.get(name, "") for name in NODE_FLAGS]
    for nodes in stated:
        match = _NODES.fullmatch(nodes.strip())
        if match is not None and 1 <= int(match[1]) <= MAX_PODS:
            return int(match[1])
    if not processes:
        return -(-(count(flags, PROCESS_FLAG) or 0) // asked.gpus)
    # Processes are one a GPU, unless something says how many a pod has. The operator of Kubeflow
    # counts one a pod where the job does not say, and so does Volcano where it gives each its rank;
    # fewer than a pod has GPUs can only be pods.
    per_pod = next((n for name in PROCESSES_A_POD if (n := count(ran.environment, name))), None)
    if per_pod is None:
        operated = KUBEFLOW in labels or (VOLCANO_POD in labels and RANK in ran.environment)
        per_pod = 1 if operated or processes < asked.gpus else asked.gpus
    return -(-processes // per_pod)
