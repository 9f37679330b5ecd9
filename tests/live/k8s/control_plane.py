"""A control plane on the loopback: etcd, kube-apiserver and kube-scheduler, our extender in it.

There is no kubelet: nodes and pods are objects, a pod is done when it is bound. Controllers run
where a test wants them; none takes the taint from a new node, so its plugin is off.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import yaml
from chart_render import NAMESPACE as RELEASE_NAMESPACE
from chart_render import render
from k8s_certificates import Pair, self_signed
from kubernetes import client

from ..slurm.processes import Daemon, free_ports

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OURS = Path(sys.executable).with_name("precision-time")
TOKEN, NAMESPACE = "loopback-only", "default"
READY_S, PLACED_S, POLL_S = 120.0, 120.0, 0.2
OFF = "ServiceAccount,TaintNodesByCondition"


def missing(assets: str | None) -> str | None:
    """Why no control plane can be started; None when one can."""
    if not assets:
        return "KUBE_ASSETS_DIR names no folder with " + ", ".join(PROGRAMS)
    absent = [name for name in PROGRAMS if not os.access(Path(assets, name), os.X_OK)]
    return f"KUBE_ASSETS_DIR={assets} has no {', '.join(absent)}" if absent else None


class RefusedError(Exception):
    """kubectl says that something did not work; the message is what it says."""


class ControlPlane:
    """One control plane; a context manager. ``home`` holds the predictor in use."""

    def __init__(self, assets: Path, home: Path) -> None:
        self._assets = assets
        self._home = home
        self._directory = tempfile.TemporaryDirectory(prefix="precision-time-k8s-")
        self.root = Path(self._directory.name)
        self._etcd, self._peer, self._port, self.extender_port = free_ports(4)
        self._pair = self_signed(self.root / "api", "kube-apiserver")
        # The scheduler reads its CAs at its start, so it knows the certificate that comes later.
        self.old = self_signed(self.root / "old", "extender-old")
        self.new = self_signed(self.root / "new", "extender-new")
        self.certificate = Pair(self.root / "tls.crt", self.root / "tls.key")
        self.kubeconfig = self.root / "kubeconfig"
        self.extender_kubeconfig = self.kubeconfig
        self.registration = self.root / "scheduler.yaml"
        self._daemons: list[Daemon] = []
        self.extender = self._daemon("extender")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all, the youngest first."""
        for daemon in (self.extender, *reversed(self._daemons)):
            daemon.stop()
        self._directory.cleanup()

    @property
    def api(self) -> client.ApiClient:
        """A client with all rights."""
        settings = client.Configuration()
        settings.host = f"https://127.0.0.1:{self._port}"
        settings.ssl_ca_cert = str(self._pair.certificate)
        settings.api_key = {"authorization": f"Bearer {TOKEN}"}
        return client.ApiClient(settings)

    @property
    def etcd(self) -> str:
        """The URL of the store behind the API server."""
        return f"http://127.0.0.1:{self._etcd}"

    def use(self, pair: Pair) -> None:
        """Put a certificate in the place the extender reads it from."""
        for source, target in (
            (pair.key, self.certificate.key),
            (pair.certificate, self.certificate.certificate),
        ):
            new = target.with_suffix(".new")
            new.write_bytes(source.read_bytes())
            new.replace(target)

    def shown_certificate(self) -> str:
        """What the extender shows to a new connection, as PEM."""
        return ssl.get_server_certificate(("127.0.0.1", self.extender_port), timeout=10.0)

    def ask(self, verb: str, body: Mapping[str, Any]) -> Any:
        """What the extender answers to a call of a scheduler."""
        context = ssl.create_default_context(cadata=self._trusted().decode())
        url = f"https://127.0.0.1:{self.extender_port}/v1/{verb}"
        with urlopen(url, json.dumps(body).encode(), timeout=30.0, context=context) as answer:
            return json.load(answer)

    def start_extender(self) -> None:
        """Start it and wait until it listens."""
        config = self.root / "config.yaml"
        server = {
            "host": "127.0.0.1",
            "port": self.extender_port,
            "metrics_port": None,
            "drain_s": 0.0,
            "certificate": str(self.certificate.certificate),
            "key": str(self.certificate.key),
        }
        settings = {"prioritize": {"policy": "reserve"}, "hardware": {"claims": True}}
        settings |= {"deadline": {"follow_kinds": ["PyTorchJob", "RayJob"]}}
        config.write_text(yaml.safe_dump({"server": server, **settings}))
        argv = [
            str(OURS),
            "k8s",
            "serve",
            "--config",
            str(config),
            "--kubeconfig",
            str(self.extender_kubeconfig),
        ]
        before = self._times_ready()
        self.extender.start(argv, {**os.environ, "PRECISION_TIME_HOME": str(self._home)})
        self.extender.wait_until(lambda: self._times_ready() > before, READY_S)

    def kill_extender(self) -> None:
        """End it in the middle of whatever it does."""
        self.extender.signal(signal.SIGKILL)
        self.extender.stop()

    def kubectl(self, *arguments: str, given: Iterable[Mapping[str, Any]] = ()) -> tuple[str, str]:
        """What kubectl writes to its two streams; raises RefusedError where it fails."""
        command = [str(self._assets / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        listed = {"apiVersion": "v1", "kind": "List", "items": list(given)}
        done = subprocess.run(
            command,
            input=json.dumps(listed),
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
            env={**os.environ, "HOME": str(self.root)},
        )
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout, done.stderr

    def apply(self, objects: Iterable[Mapping[str, Any]], *options: str) -> tuple[str, str]:
        """Let the API server take objects, of which it must know every field."""
        return self.kubectl("apply", "--validate=strict", "-f", "-", *options, given=objects)

    def reached(self, webhooks: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration of webhooks whose service, which has no network here, is the extender."""
        found: dict[str, Any] = json.loads(json.dumps(webhooks))
        for webhook in found["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["timeoutSeconds"] = 10  # of a machine that does other things too
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{self.extender_port}{path}",
                "caBundle": base64.b64encode(self._trusted()).decode(),
            }
        return found

    def kubeconfig_of(self, account: str, namespace: str) -> Path:
        """A kubeconfig of a service account, with the rights that are bound to it."""
        told = client.CoreV1Api(self.api).create_namespaced_service_account_token(
            account, namespace, {"spec": {"expirationSeconds": 3600}}
        )
        path = self.root / f"{account}.kubeconfig"
        path.write_text(yaml.safe_dump(self._kubeconfig(told.status.token)))
        return path

    def run(self, program: str, *arguments: str) -> Daemon:
        """Another program of the assets, which ends with the control plane."""
        return self._run(program, *arguments)

    def add_nodes(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Nodes that are ready, and known to the extender a moment later."""
        core = client.CoreV1Api(self.api)
        for node in nodes:
            core.create_node({**node, "spec": {}})

    def add_pods(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Pods that wait for the scheduler."""
        core = client.CoreV1Api(self.api)
        for pod in pods:
            core.create_namespaced_pod(NAMESPACE, pod)

    def nodes_of(self, prefix: str) -> dict[str, str | None]:
        """The node of each pod whose name begins so; None while it has none."""
        pods = client.CoreV1Api(self.api).list_namespaced_pod(NAMESPACE).items
        found = {pod.metadata.name: pod.spec.node_name for pod in pods}
        return {name: node for name, node in found.items() if name.startswith(prefix)}

    def wait_placed(self, prefix: str, count: int) -> dict[str, str]:
        """The node of each pod, once so many have one."""
        wait_until(lambda: sum(map(bool, self.nodes_of(prefix).values())) == count)
        return {name: node for name, node in self.nodes_of(prefix).items() if node}

    def clear(self) -> None:
        """Remove all pods and nodes."""
        core = client.CoreV1Api(self.api)
        core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
        core.delete_collection_node()
        wait_until(lambda: not self.nodes_of("") and not core.list_node().items)

    def _start(self) -> None:
        self._start_etcd()
        self._start_api_server()
        self._grant()
        self.use(self.old)
        self.start_extender()
        self._start_scheduler()

    def _grant(self) -> None:
        """The extender gets the account of the chart, and no right more."""
        values: dict[str, Any] = {"config": {"hardware": {"claims": True}}}
        values["admission"] = {"webhook": {"kinds": {"pytorchjobs": True, "rayjobs": True}}}
        rendered = render(values, namespace=RELEASE_NAMESPACE)
        core = client.CoreV1Api(self.api)
        core.create_namespace({"metadata": {"name": RELEASE_NAMESPACE}})
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        self.apply([found for kind in kinds for found in rendered.all(kind)])
        (account,) = rendered.all("ServiceAccount")
        name = account["metadata"]["name"]
        self.extender_kubeconfig = self.kubeconfig_of(name, RELEASE_NAMESPACE)

    def _start_etcd(self) -> None:
        mine, peer = self.etcd, f"http://127.0.0.1:{self._peer}"
        self._run(
            "etcd",
            "--data-dir",
            str(self.root / "etcd"),
            "--unsafe-no-fsync",
            "--listen-client-urls",
            mine,
            "--advertise-client-urls",
            mine,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        )

    def _start_api_server(self) -> None:
        tokens = self.root / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
        certificate, key = str(self._pair.certificate), str(self._pair.key)
        daemon = self._run(
            "kube-apiserver",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(self._port),
            "--advertise-address",
            "127.0.0.1",  # else it wants a default route
            "--etcd-servers",
            self.etcd,
            "--authorization-mode",
            "RBAC",
            "--storage-media-type",
            "application/json",  # which tests can read and change
            "--token-auth-file",
            str(tokens),
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--tls-cert-file",
            certificate,
            "--tls-private-key-file",
            key,
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            certificate,
            "--service-account-signing-key-file",
            key,
            "--disable-admission-plugins",
            OFF,
            "--cert-dir",
            str(self.root / "api"),
        )
        self.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig()))
        daemon.wait_until(self._api_ready, READY_S, POLL_S)

    def _start_scheduler(self) -> None:
        """With the registration of the chart, but for where things are on this machine."""
        bundle = self.root / "extender-ca.crt"
        bundle.write_bytes(self._trusted())
        told = render(namespace=RELEASE_NAMESPACE).scheduler_config()
        told["clientConnection"] = {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 1000}
        (extender,) = told["extenders"]
        extender["urlPrefix"] = f"https://127.0.0.1:{self.extender_port}/v1"
        extender["tlsConfig"] = {"caFile": str(bundle)}
        self.registration.write_text(yaml.safe_dump(told))
        self._run("kube-scheduler", "--config", str(self.registration), "--secure-port", "0")

    def _run(self, program: str, *arguments: str) -> Daemon:
        daemon = self._daemon(program)
        self._daemons.append(daemon)
        daemon.start([str(self._assets / program), *arguments], os.environ)
        return daemon

    def _daemon(self, name: str) -> Daemon:
        return Daemon(name, self.root / f"{name}.out")

    def _trusted(self) -> bytes:
        return self.old.certificate.read_bytes() + self.new.certificate.read_bytes()

    def _kubeconfig(self, token: str = TOKEN) -> dict[str, Any]:
        server = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self._pair.certificate),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": server}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "admin"}}],
            "users": [{"name": "admin", "user": {"token": token}}],
        }

    def _api_ready(self) -> bool:
        """True once it says so and the namespace is there, each of which may come first."""
        try:
            client.CoreV1Api(self.api).read_namespace(NAMESPACE)
            self.kubectl("get", "--raw", "/readyz")
        except Exception:
            return False
        return True

    def _times_ready(self) -> int:
        output = self.extender.output
        return output.read_text(errors="replace").count('"predictor ') if output.exists() else 0


def wait_until(condition: Callable[[], bool], timeout_s: float = PLACED_S) -> None:
    """Wait for a condition; raises AssertionError when it does not come true."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"not within {timeout_s:g} s"
        time.sleep(POLL_S)
