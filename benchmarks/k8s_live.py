"""Measures placement on a real control plane: pods/s it costs, and the GPU-hours it saves.

`k8s_live.py rates` creates pods in turns without us, with admission placement, with its terms in
the pod and no webhook, and with the extender, and tells how many a second are bound: as they are
created, and of those that were created while no scheduler ran. `k8s_live.py hours` lets the same
jobs arrive under each policy, and adds up the GPU-hours they take where they land. KUBE_ASSETS_DIR
names the programs of Kubernetes, as for the live tests; nodes and pods are objects, no container
runs.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import urllib3
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "shared"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "k8s"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chart_render import NAMESPACE as RELEASE
from chart_render import render
from gfd_nodes import GPU, node

from k8s_extender.config import Config
from k8s_extender.nodes import gpu_node
from k8s_extender.rank import estimated
from k8s_extender.workload import template_job
from predictor.estimate.store import load_predictor
from tests.live.k8s.control_plane import ControlPlane, wait_until
from tests.live.k8s.objects import MIXED, ready, template

# Without us, by the webhook, with its terms but without it, by the extender: the scheduler and the
# namespace of each.
FORMS = {"none": "plain", "admission": "plain", "written": "plain", "extender": "extended"}
PRODUCTS = (
    ("NVIDIA-H100-80GB-HBM3", 81559, (9, 0)),
    ("NVIDIA-A100-SXM4-80GB", 81920, (8, 0)),
    ("NVIDIA-L40S", 46068, (8, 9)),
    ("Tesla-V100-SXM2-32GB", 32768, (7, 0)),
)
CLIENTS = 16
RATES = ("created", "bound", "scheduled")
ALL = 8  # GPUs of a node


class Plane(ControlPlane):
    """A control plane with two schedulers, of which one asks the extender."""

    percent = 100  # of the nodes are scored
    hour_s = 1.5  # how long an hour of jobs takes here

    def __enter__(self) -> Plane:
        super().__enter__()
        told = self.api.configuration
        headers = {**told.api_key, "Content-Type": "application/json"}
        self._url = f"{told.host}/api/v1"
        self._pool = urllib3.PoolManager(
            maxsize=2 * CLIENTS, ca_certs=told.ssl_ca_cert, headers=headers
        )
        for name in FORMS:
            self.call("POST", "namespaces", {"metadata": {"name": name}})
        (hooks,) = render({"mode": "place"}, namespace=RELEASE).all("MutatingWebhookConfiguration")
        (place,) = (h for h in hooks["webhooks"] if h["name"].startswith("place."))
        place["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "admission"}}
        self.apply([self.reached({**hooks, "webhooks": [place]})])
        return self

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """An answer of the API server; raises where it refuses."""
        sent = None if body is None else orjson.dumps(body)
        found = self._pool.request(method, f"{self._url}/{path}", body=sent, **options)
        if found.status >= 300:
            raise SystemExit(f"{method} {path}: {found.status} {found.data[:500]!r}")
        return orjson.loads(found.data)

    def bound(self, form: str, count: int, heard: Callable[[str, str], None]) -> threading.Thread:
        """Hears of the name and node of pods as they are bound, until there are so many."""
        seen, path = set[str](), f"namespaces/{form}/pods"

        def hear(pod: Mapping[str, Any]) -> None:
            name, place = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if place and name not in seen:
                seen.add(name)
                heard(name, place)

        def listen() -> None:
            while len(seen) < count:  # who is slow to read is let go
                listed, rest = self.call("GET", path), b""
                for pod in listed["items"]:
                    hear(pod)
                if len(seen) == count:
                    break
                query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                stream = self._pool.request(
                    "GET", f"{self._url}/{path}", fields=query, preload_content=False, timeout=1200
                )
                for part in stream.stream():
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        hear(orjson.loads(line)["object"])
                    if len(seen) == count:
                        break
                stream.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return thread

    def configure(self, **parts: Any) -> None:
        """Let the extender run by other parts of its configuration, which it reads anew."""
        place = self.root / "config.yaml"
        place.write_text(yaml.safe_dump(yaml.safe_load(place.read_text()) | parts))
        time.sleep(6.0)

    def signal(self, number: signal.Signals) -> None:
        """Stop all schedulers, or let them go on."""
        for daemon in self._daemons:
            if daemon.name == "kube-scheduler":
                daemon.signal(number)

    def used_s(self) -> dict[str, float]:
        """Processor seconds of each program so far."""
        found: defaultdict[str, float] = defaultdict(float)
        for daemon in (*self._daemons, self.extender):
            words = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
            found[daemon.name] += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return dict(found)

    def empty(self, form: str) -> None:
        """Remove the pods of a form."""
        path = f"namespaces/{form}/pods"
        self.call("DELETE", path, {"gracePeriodSeconds": 0})
        wait_until(lambda: not self.call("GET", path)["items"])
        time.sleep(0.5)

    def nodes(self, each: int) -> None:
        """So many nodes of each GPU type."""
        made = ready(
            [
                node(f"{product.lower()}-{i:04}", product, memory=memory, gpus=ALL, capability=able)
                for i in range(each)
                for product, memory, able in PRODUCTS
            ]
        )
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda one: self.call("POST", "nodes", one), made))
        time.sleep(5.0)

    def _start_scheduler(self) -> None:
        super_config = render({"mode": "place"}, namespace=RELEASE).scheduler_config()
        bundle = self.root / "extender-ca.crt"
        bundle.write_bytes(self._trusted())
        for name in dict.fromkeys(FORMS.values()):
            told = super_config | {
                "clientConnection": {
                    "kubeconfig": str(self.kubeconfig),
                    "qps": 1000,
                    "burst": 1000,
                },
                "leaderElection": {"leaderElect": False},
                "percentageOfNodesToScore": self.percent,
                "podMaxBackoffSeconds": 1,  # of hours in seconds
                "profiles": [{"schedulerName": name}],
            }
            (extender,) = told.pop("extenders")
            if name == "extended":
                url = f"https://127.0.0.1:{self.extender_port}/v1"
                own = {"urlPrefix": url, "tlsConfig": {"caFile": str(bundle)}}
                told["extenders"] = [extender | own]
            config = self.root / f"{name}.yaml"
            config.write_text(yaml.safe_dump(told))
            self.run("kube-scheduler", "--config", str(config), "--secure-port", "0")


def pod(form: str, name: str, said: Mapping[str, str], gpus: int = 1) -> dict[str, Any]:
    """A pod of a form, with its share of a node's cores and memory."""
    made = template(said, gpus)
    made["metadata"]["name"] = name
    made["spec"]["schedulerName"] = FORMS[form]
    for part in made["spec"]["containers"][0]["resources"].values():
        part |= {"cpu": str(6 * gpus), "memory": f"{48 * gpus}Gi"}
    if gpus == ALL:  # who takes a whole node names the GPUs
        named = {"key": f"{GPU}product", "operator": "In", "values": [p for p, *_ in PRODUCTS[:2]]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [named]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        made["spec"]["affinity"] = {"nodeAffinity": required}
    return made


def product_of(place: str) -> str:
    """The GPU of a node by its name."""
    return place.rpartition("-")[0]


def shown(got: Counter[str]) -> str:
    """How many of each GPU."""
    return ", ".join(f"{product} {number}" for product, number in sorted(got.items()))


@dataclass(frozen=True, slots=True)
class Turn:
    """Pods/s of a turn, the GPUs that pods got, and processor seconds of each program."""

    rates: Mapping[str, float]
    got: Counter[str]
    used_s: Mapping[str, float]


def turn(plane: Plane, form: str, count: int) -> Turn:
    """Pods bound as they are created; then pods created while no scheduler runs, and bound."""
    before, got = plane.used_s(), Counter[str]()
    rates: dict[str, float] = {}
    for apart in (False, True):
        places: dict[str, str] = {}
        listening = plane.bound(form, count, places.__setitem__)
        made = [pod(form, f"p{i}", MIXED | {"policy": "time"}) for i in range(count)]
        if form == "written":
            admitted = plane.call("POST", "namespaces/admission/pods?dryRun=All", made[0])
            for one in made:
                one["spec"]["affinity"] = admitted["spec"]["affinity"]
        if apart:
            plane.signal(signal.SIGSTOP)
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda one: plane.call("POST", f"namespaces/{form}/pods", one), made))
        created = time.perf_counter() - began
        if apart:
            plane.signal(signal.SIGCONT)
            began = time.perf_counter()
        listening.join(120.0)
        bound = time.perf_counter() - began
        if len(places) < count:
            raise SystemExit(f"{form}: {len(places)} of {count} pods were bound")
        rates |= {"scheduled": count / bound} if apart else {"bound": count / bound}
        rates["created"] = count / created  # by itself: of the second half
        got.update(map(product_of, places.values()))
        plane.empty(form)
    used = {name: after - before[name] for name, after in plane.used_s().items()}
    return Turn(rates, got, used)


def rates(assets: Path, home: Path, sizes: Sequence[int], rounds: int, count: int) -> None:
    """Print pods/s of each form at each size, the forms in turns."""
    head = "".join(f"{name:>11}  of none: quartiles   " for name in RATES)
    print(f"nodes  form      {head}  processor ms a pod; GPUs")
    for size in sizes:
        with Plane(assets, home) as plane:
            plane.nodes(size // len(PRODUCTS))
            found: dict[str, list[Turn]] = {form: [] for form in FORMS}
            for number in range(rounds + 1):
                order = list(FORMS)
                random.Random(number).shuffle(order)
                for form in order:
                    one = turn(plane, form, count)
                    if number:  # the first is to warm up
                        found[form].append(one)
            for form, turns in found.items():
                row = f"{size:5}  {form:10}"
                for name in RATES:
                    pairs = zip(turns, found["none"], strict=True)
                    shares = [one.rates[name] / none.rates[name] for one, none in pairs]
                    middle = statistics.median(one.rates[name] for one in turns)
                    quartiles = "".join(f"{s:6.2f}" for s in statistics.quantiles(shares, n=4))
                    row += f"{middle:10.1f}  {quartiles}      "
                used = {n: statistics.median(t.used_s[n] for t in turns) for n in turns[0].used_s}
                told = ", ".join(f"{n} {500 * s / count:.2f}" for n, s in used.items())
                print(f"{row}{told}; {shown(sum((t.got for t in turns), Counter()))}", flush=True)


# What jobs are, beside their GPUs and length: what a V100 takes well, and what it does not.
KINDS = (
    {"model": "resnet50", "precision": "amp", "batch-size": "128"},
    {"model": "resnet50", "precision": "fp32", "batch-size": "64"},
    {"model": "vgg16", "precision": "amp", "batch-size": "64"},
    {"model": "bert-large", "precision": "amp", "batch-size": "8"},
    {"model": "bert-base", "precision": "fp32", "batch-size": "16"},
    {"model": "gpt2", "precision": "amp", "batch-size": "4"},
)
GPUS = (1, 1, 1, 2, 2, 4, ALL)
HOURS, SPREAD = 2.0, 0.5  # median length, and the standard deviation of its logarithm
POLICIES = ("time", "reserve", "time, balance", "reserve, balance")
WAYS = [("none", "time"), *((form, p) for form in ("admission", "extender") for p in POLICIES)]
OFF = 0.15  # standard deviation of the logarithm by which predictions miss


@dataclass(frozen=True, slots=True)
class Job:
    """One job: when it comes, and its hours on each GPU, which no prediction tells exactly."""

    name: str
    said: Mapping[str, str]
    gpus: int
    arrives_h: float
    hours: Mapping[str, float]


def jobs(count: int, load: float, capacity: int, seed: int) -> list[Job]:
    """Jobs that come at random, and keep a share of the GPUs busy where types are picked evenly.

    Those of a whole node want an H100 or A100.
    """
    draw, predictor, config = random.Random(seed), load_predictor(), Config()
    nodes = [node(p.lower(), p, memory=m, gpus=ALL, capability=c) for p, m, c in PRODUCTS]
    types = [(n["metadata"]["name"], gpu_node(n, config.hardware).type) for n in nodes]
    made: list[Job] = []
    arrives_h = 0.0
    for i in range(count):
        network, gpus = draw.choice(KINDS), draw.choice(GPUS)
        said = {**network, "steps": "1000"}
        job = template_job("Pod", pod("none", "x", said, gpus), config)
        assert job is not None
        steps = {}
        for name, kind in types:
            assert kind is not None
            step_s = estimated(predictor, config, job, kind).step_s
            assert step_s is not None
            steps[name] = step_s * math.exp(draw.gauss(0.0, OFF))
        unit = HOURS * math.exp(draw.gauss(0.0, SPREAD)) / statistics.geometric_mean(steps.values())
        hours = {name: unit * step_s for name, step_s in steps.items()}
        made.append(Job(f"j{i}", said, gpus, arrives_h, hours))
        if gpus == ALL:
            hours = {p.lower(): hours[p.lower()] for p, *_ in PRODUCTS[:2]}
        wanted = gpus * statistics.mean(hours.values())
        arrives_h += draw.expovariate(1.0) * wanted / (load * capacity)
    return made


@dataclass(slots=True)
class Outcome:
    """What a replay comes to."""

    gpu_hours: float = 0.0
    waited_h: float = 0.0
    makespan_h: float = 0.0
    got: Counter[str] = field(default_factory=Counter)


def replay(plane: Plane, form: str, policy: str, todo: Sequence[Job]) -> Outcome:
    """Let jobs come, run for their time where they land, and go."""
    found, lock, ends = Outcome(), threading.Lock(), list[tuple[float, str]]()
    by_name = {job.name: job for job in todo}
    began = time.monotonic()

    def heard(name: str, place: str) -> None:
        job, kind = by_name[name], product_of(place)
        now_h = (time.monotonic() - began) / plane.hour_s
        with lock:
            found.gpu_hours += job.gpus * job.hours[kind]
            found.waited_h += (now_h - job.arrives_h) / len(todo)
            found.got[kind] += job.gpus
            heapq.heappush(ends, (now_h + job.hours[kind], name))

    plane.bound(form, len(todo), heard)
    waiting, ended = list(reversed(todo)), 0
    path = f"namespaces/{form}/pods"
    while ended < len(todo):
        now_h = (time.monotonic() - began) / plane.hour_s
        while waiting and waiting[-1].arrives_h <= now_h:
            job = waiting.pop()
            plane.call("POST", path, pod(form, job.name, {**job.said, "policy": policy}, job.gpus))
        with lock:
            over = [heapq.heappop(ends) for _ in range(sum(end <= now_h for end, _ in ends))]
        for _, name in over:
            plane.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
        ended += len(over)
        time.sleep(0.02)
    found.makespan_h = (time.monotonic() - began) / plane.hour_s
    plane.empty(form)
    return found


def hours(assets: Path, home: Path, loads: Sequence[float], seeds: int, count: int) -> None:
    """Print the GPU-hours of each policy in both forms, and without us."""
    each = 2
    print("load  seed  form       policy            GPU-hours  of none  waited h  makespan h  GPUs")
    with Plane(assets, home) as plane:
        plane.nodes(each)
        for load in loads:
            for seed in range(seeds):
                todo = jobs(count, load, ALL * each * len(PRODUCTS), seed)
                plain = 0.0
                for form, policy in WAYS:
                    plane.configure(placement={"balance": "balance" in policy})
                    found = replay(plane, form, policy.partition(",")[0], todo)
                    plain = plain or found.gpu_hours
                    row = f"{load:4.2f} {seed:5}  {form:10} {policy:16} {found.gpu_hours:10.0f}"
                    row += f" {found.gpu_hours / plain:8.2f} {found.waited_h:9.2f}"
                    print(f"{row} {found.makespan_h:11.1f}  {shown(found.got)}", flush=True)


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rates", "hours"))
    parser.add_argument("--sizes", default="100,1000,5000", help="nodes [%(default)s]")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each form [%(default)s]")
    parser.add_argument("--pods", type=int, default=100, help="of a turn, or jobs [%(default)s]")
    parser.add_argument("--percent", type=int, default=100, help="of nodes scored [%(default)s]")
    parser.add_argument("--loads", default="0.5,0.9", help="of the GPUs [%(default)s]")
    parser.add_argument("--seeds", type=int, default=2, help="draws of jobs [%(default)s]")
    parser.add_argument("--hour", type=float, default=1.5, help="seconds it takes [%(default)s]")
    given = parser.parse_args()
    assets = Path(os.environ["KUBE_ASSETS_DIR"])
    Plane.percent, Plane.hour_s = given.percent, given.hour
    with tempfile.TemporaryDirectory() as empty:
        home = Path(os.environ.setdefault("PRECISION_TIME_HOME", empty))
        if given.what == "rates":
            rates(assets, home, [*map(int, given.sizes.split(","))], given.rounds, given.pods)
        else:
            loads = [*map(float, given.loads.split(","))]
            hours(assets, home, loads, given.seeds, given.pods)


if __name__ == "__main__":
    main()
