"""From a pod, or the object that makes pods, to the training job they run."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from operator import itemgetter
from typing import Any, get_args

import orjson

from predictor.identify.files import Files, settings_of
from predictor.identify.grammar import parse_text, spoken
from predictor.identify.identify import dated, identify, parse_script
from predictor.identify.launch import Launch, as_flags, base_name, serves, shell_file
from predictor.identify.rules import RuleContext, Rules
from predictor.identify.shell import JOINS
from predictor.identify.shell_syntax import UNKNOWN
from predictor.identify.stated import SCRIPT, Problem, Stated

from . import pods
from .config import PREFIX, Config, Prioritize
from .plain import EXPECTED, MOST, at, count, items, mapping, seconds_of, text, texts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodJob:
    """A training job as one of its pods tells it: the same object for all pods that are alike.

    ``gpus_per_pod`` and ``pods`` give the GPUs of the whole job; ``deadline_s`` is the time the job
    may run in seconds, None where it states none, ``wish_s`` what the user's annotation says of it,
    and ``hard`` that a node which is too slow for it is of no use. ``gpu_memory_bytes`` is what the
    user says each GPU must have, ``script`` the signature of image and command, ``queue`` that of
    Kueue and others which its labels name. ``node_selector``, ``node_affinity`` (the required terms
    of the API, plain JSON) and ``tolerations`` tell which nodes it may land on. ``gpu_fraction`` is
    the part of each GPU that a scheduler of shared GPUs gives it. ``claimed`` GPUs are those of
    resource claims, whose number a pod does not tell. ``unproven`` is why no deadline rests on it.
    """

    stated: Stated
    gpus_per_pod: int
    script: str = ""
    queue: str = ""
    pods: int = 1
    deadline_s: float | None = None
    wish_s: float | None = None
    hard: bool = False
    gpu_memory_bytes: int | None = None
    resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: object = None
    tolerations: Sequence[Mapping[str, Any]] = ()
    scheduling_policy: str | None = None
    gpu_fraction: float = 1.0
    claimed: bool = False
    unproven: str = ""

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.gpus_per_pod * self.pods

    @property
    def annotated(self) -> bool:
        """Whether annotations state something of the training: no other pod is ever refused."""
        return "annotation" in self.stated.origins.values() or bool(
            self.gpu_memory_bytes or self.hard
        )


VARIABLES = "variables of its container are read as settings: say them by flags or annotations"
DEADLINE = f"{PREFIX}deadline"
HARD = f"{PREFIX}deadline-hard"
WISHES = ("deadline", "deadline-hard", "fill-deadline", "gpu-memory", "placement", "policy", "pods")
# Others of ours: a whole text, and what we write.
OURS = ("job", "predicted-", "filled-deadline-", "why-no-", "expected-run-time", "deadline-gpu")
PREDICTED_FOR = f"{PREFIX}predicted-for"
GPU_MEMORY = f"{PREFIX}gpu-memory"
# Longer deadlines are slips: a deadline of ten years ends nothing.
LONGEST_S = 366 * 86_400.0
_BYTES = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s?(?:Gi|GiB|G|GB)", re.ASCII)
POLICY = f"{PREFIX}policy"
POLICIES: tuple[str, ...] = get_args(Prioritize.model_fields["policy"].annotation)
# Names of what made a pod, the outermost first: a rule about names means these.
OWNERS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
)
QUEUES = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "volcano.sh/queue-name")


def template_job(
    kind: str,
    obj: Mapping[str, Any],
    config: Config,
    rules: Rules | None = None,
    maps: pods.ConfigMaps = pods.NO_MAPS,
) -> PodJob | None:
    """The job of a Pod, or of what makes pods: the kinds of `pod_sets`.

    None for other kinds and where no pod asks for GPUs. Annotations of the object hold where those
    of its pods say nothing. Variables and files are read from ``maps``, where they are known. What
    is of a wrong type counts as absent; nothing is raised.
    """
    found, outer = pods.pod_sets(kind, obj), texts(obj, "metadata", "annotations")
    parts = []  # GPUs, template, what one pod asks for, annotations
    for group in () if found is None else found.sets:
        template = group.of(obj)
        told = {**outer, **texts(template, "metadata", "annotations")}
        asked = pods.asked_of(mapping(template, "spec"), told, config.hardware.resources)
        if asked is not None and 1 <= group.count <= pods.MAX_PODS:
            parts.append((asked.gpus * group.count, template, asked, told))
    if found is None or not parts:
        return None
    _, template, asked, annotations = max(parts, key=itemgetter(0))
    spec, labels = mapping(template, "spec"), texts(template, "metadata", "labels")
    containers = pods.containers_with(spec, asked.resource)
    script = pods.signature(containers[0]) if containers else ""
    if found.launcher is not None:
        containers = items(found.launcher, "spec", "containers")
    ran, files = pods.StartedCommand((), "", {}), None
    if containers:
        pod = spec if found.launcher is None else mapping(found.launcher, "spec")
        ran, files = pods.ran_by(containers[0], maps), pods.mounted(pod, containers[0], maps)
    if containers and serves((image := text(containers[0], "image"),)):
        ran = replace(ran, words=("docker", "run", image, *ran.words), script="")
    if found.script:
        runtime = settings_of(".yaml", text(obj, "spec", "runtimeEnvYAML")) or {}
        there = {n[9:]: v for n, v in runtime.items() if n.startswith("env_vars.")}
        ran = pods.StartedCommand((), found.script, {**ran.environment, **there})
    labelled = {**texts(obj, "metadata", "labels"), **labels}
    queue = _first(labelled, QUEUES)
    own = _stated(obj, _first(labelled, OWNERS), queue, annotations, ran, rules, files)
    own = dated(own, (text(c, "image") for c in containers[:1]))
    own = own.over(parse_text(annotations.get(PREDICTED_FOR, ""), SCRIPT))
    stated = _over_variables(own, ran)
    unproven = "" if stated is own else VARIABLES
    wish_s, memory, policy, problems = _wishes(annotations)
    deadlines = (found.deadline_s, count(spec, "activeDeadlineSeconds"), wish_s)
    if all_gpus := stated.values.get("gpus"):
        number: int | None = -(-int(all_gpus) // asked.gpus)
    else:
        number = pods.pods_told(ran, labels, annotations, asked, together=found.settled)
        if number is None and kind == pods.VOLCANO and pods.trains_alone(ran):
            number = 1
    # In pods as large as those of the main set.
    all_pods = max(1, number or -(-sum(gpus for gpus, *_ in parts) // asked.gpus))
    joined = all_pods > 1 and any(n.startswith((*JOINS, pods.TF_CONFIG)) for n in ran.environment)
    if (found.settled or joined) and all_pods * asked.gpus > 1:
        if stated.alone or not any(one.led or one.joins for one in pods.launches_of(ran)):
            unproven = unproven or "that its processes train together is assumed"
        stated = replace(stated, alone=False)  # what makes the pods starts them
    # What the API server may let the pods bear when they are made; a pod has it already.
    lent = [] if kind == "Pod" else [{"key": asked.resource, "operator": "Exists"}]
    required = at(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    here = (replace(p, text=p.text.replace("--comment", "annotations")) for p in stated.problems)
    return PodJob(
        stated=replace(stated, problems=tuple(dict.fromkeys((*here, *problems)))),
        gpus_per_pod=asked.gpus,
        script=script,
        queue=queue,
        pods=all_pods,
        deadline_s=min((float(s) for s in deadlines if s and 0 < s <= MOST), default=None),
        wish_s=wish_s,
        hard=annotations.get(HARD, "").lower() == "true",
        gpu_memory_bytes=memory,
        resource=asked.resource,
        node_selector=texts(spec, "nodeSelector"),
        node_affinity=None if required is None else items(required, "nodeSelectorTerms"),
        tolerations=(*items(spec, "tolerations"), *lent),
        scheduling_policy=policy,
        gpu_fraction=asked.fraction,
        claimed=asked.claimed,
        unproven=unproven,
    )


def _over_variables(stated: Stated, ran: pods.StartedCommand) -> Stated:
    """What is stated, over the settings that plain variables are to a program that trains."""
    flags, settings = as_flags(ran.environment), (f"--{n}={v}" for n, v in ran.environment.items())
    launches = list(pods.launches_of(ran)) if flags else []
    file = () if ran.script else shell_file(ran.words)  # it may hold any program, as an image may
    named = Launch(base_name(file[0]) if file else "train.py", (), tuple(settings))
    if not flags or (ran.words and not (launches or file)):
        return stated
    if any(one.does_other_work for one in (named, *launches)):
        return stated
    told = parse_script("", ("python", "train.py", *flags))
    learns = {"epochs", "grad_accum"} & told.values.keys()  # agents have a number of steps, too
    if not learns and not any(one.trains for one in launches):
        return stated
    return replace(stated.over(told), alone=stated.alone)


def _stated(
    obj: Mapping[str, Any],
    owner: str,
    queue: str,
    annotations: Mapping[str, str],
    ran: pods.StartedCommand,
    rules: Rules | None,
    files: Files | None,
) -> Stated:
    context = RuleContext(
        name=owner or text(obj, "metadata", "name"),
        account=text(obj, "metadata", "namespace"),
        partition=queue,
        command=" ".join(ran.words).lstrip(f"{UNKNOWN} "),
        script=ran.script,
    )
    behind = ran.words.index(ran.script) + 1 if ran.script and ran.words else 0
    return identify(
        environment=ran.environment,
        annotations={
            k: v for k, v in annotations.items() if k.removeprefix(PREFIX) not in (k, *WISHES)
        },
        script=ran.script,
        argv=ran.words[behind:],
        rules=rules,
        context=context,
        files=files,
    )


def _wishes(
    annotations: Mapping[str, str],
) -> tuple[float | None, int | None, str | None, list[Problem]]:
    """The user's deadline in seconds, bytes of each GPU and policy, and what cannot be read."""
    wish, memory, policy = (annotations.get(name) for name in (DEADLINE, GPU_MEMORY, POLICY))
    wish_s, match = seconds_of(wish or ""), _BYTES.fullmatch((memory or "").strip())
    unread = []
    if wish_s is not None and not 1 <= wish_s <= LONGEST_S:
        wish_s = None
    if wish is not None and wish_s is None:
        unread.append(f"invalid deadline={wish!r:.80}; expected {EXPECTED}, from 1s to 366d")
    if policy not in (None, *POLICIES):
        unread.append(f"invalid policy={policy!r:.80}; expected one of {', '.join(POLICIES)}")
        policy = None
    for key in (name.removeprefix(PREFIX) for name in annotations if name.startswith(PREFIX)):
        if not (key in WISHES or key.startswith(OURS) or spoken(key)):
            near = "".join(f"; nearest: {one}" for one in get_close_matches(key, WISHES, n=1))
            unread.append(f"{key[:40]!r} is not an annotation of ours{near}")
    if memory is not None and match is None:
        unread.append(f"invalid gpu-memory={memory!r:.80}; expected GiB such as 60Gi")
    needed = None if match is None else round(float(match[1]) * 2**30)
    return wish_s, needed, policy, [Problem("annotation", words) for words in unread]


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


MAX_KINDS = 256
MAX_BYTES = 2**14
# What is another's for each pod of a job, or each job of a kind: names in it are for rules.
_OF_JOB = ("controller-uid", "job-name", "job-completion-index")
OF_ONE = frozenset(before + name for name in _OF_JOB for before in ("", "batch.kubernetes.io/"))
# The service account's volume has a name of its own in each pod. Containers are compared apart.
OF_SPEC = frozenset(("volumes", "hostname", "nodeName", "containers", "initContainers"))
OF_CONTAINER = frozenset(("volumeMounts", "env"))
RANKS = frozenset((pods.RANK, "PET_NODE_RANK"))  # operators give each pod of a job its own


class JobReader:
    """Reads the jobs of pods, those that differ in nothing but who they are once.

    Where a site has rules, which may ask for names, every pod is read. Used by one thread.
    """

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config, self._rules = config, rules
        self._jobs: OrderedDict[bytes, PodJob | None] = OrderedDict()

    def __call__(self, pod: Mapping[str, Any]) -> PodJob | None:
        """The job of a pod."""
        # All of a pod that may tell its job.
        metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
        parts = [_without(metadata.get(name), OF_ONE) for name in ("labels", "annotations")]
        containers = [*items(spec, "containers"), None, *items(spec, "initContainers")]
        parts += [_without(each, OF_CONTAINER) for each in containers]
        parts.append(_without(spec, OF_SPEC))
        environments = [items(each, "env") for each in containers]
        ranked = [[None if text(v, "name") in RANKS else v for v in env] for env in environments]
        key = orjson.dumps((parts, ranked))
        if pods.RANK.encode() in key:  # what is run may heed it
            key = orjson.dumps((parts, environments))
        if self._rules.rules or len(key) > MAX_BYTES:
            return template_job("Pod", pod, self._config, self._rules)
        if key not in self._jobs:
            self._jobs[key] = template_job("Pod", pod, self._config, self._rules)
            if len(self._jobs) > MAX_KINDS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(key)
        return self._jobs[key]


def _without(value: Any, names: frozenset[str]) -> Any:
    if not isinstance(value, dict) or names.isdisjoint(value):
        return value
    return {key: part for key, part in value.items() if key not in names}
