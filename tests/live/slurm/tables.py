"""What a bench is made of, and the configuration files that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CPUS = 16
MEMORY_MB = 64_000
ACCEPT_ALL = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
"""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node; GPUs of one type, or none."""

    name: str
    gpu_type: str | None = None
    gpus: int = 0
    features: tuple[str, ...] = ()

    @property
    def gres(self) -> str:
        """As slurm.conf and sinfo write it; empty without GPUs."""
        return f"gpu:{self.gpu_type}:{self.gpus}" if self.gpu_type else ""


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition. Times in minutes: no DefaultTime and no end of MaxTime where None."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    default_min: int | None = None
    max_min: int | None = None
    more: str = ""


def _pair(letter: str, gpu_type: str, *features: str) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(f"{letter}{i}", gpu_type, 4, (gpu_type, *features)) for i in (1, 2))


NODES = (
    *_pair("a", "a100", "ampere", "gpu", "tensorcore", "bf16", "tf32"),
    *_pair("v", "v100", "volta", "gpu", "tensorcore"),
    *_pair("p", "p100", "pascal", "gpu"),
    NodeSpec("c1"),
)
_GPU_NODES = tuple(node.name for node in NODES if node.gpus)
PARTITIONS = (
    PartitionSpec("gpu", _GPU_NODES, default=True, default_min=1440, max_min=2880),
    PartitionSpec("short", _GPU_NODES, default_min=10, max_min=30),
    PartitionSpec("nolimit", _GPU_NODES),
    PartitionSpec("cpu", ("c1",), default_min=60, max_min=2880),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What to start. ``slurm_user`` is the account of slurmctld; None for whoever starts it.

    ``hook`` is job_submit.lua and ``beside`` further files of slurm.conf's directory, by name.
    ``scheduler`` are SchedulerParameters, ``lines`` further lines of slurm.conf.
    """

    nodes: tuple[NodeSpec, ...] = NODES
    partitions: tuple[PartitionSpec, ...] = PARTITIONS
    accounting: bool = True
    hook: str = ACCEPT_ALL
    beside: Mapping[str, str] = field(default_factory=dict)
    scheduler: tuple[str, ...] = ("bf_interval=1", "sched_interval=2")
    lines: tuple[str, ...] = ()
    slurm_user: str | None = None
    priority: str = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Directories, ports and names that one running bench has to itself."""

    root: Path
    host: str
    slurm_user: str
    slurmd_user: str
    controller_port: int
    database_port: int
    node_ports: tuple[int, ...]
    address_prefix: str
    plugin_dir: Path | None
    version: tuple[int, int]

    @property
    def etc(self) -> Path:
        """Where slurm.conf and job_submit.lua are."""
        return self.root / "etc"

    @property
    def munge_socket(self) -> Path:
        """The socket of this bench's own munged."""
        return self.root / "munge" / "munge.socket"

    @property
    def mariadb_socket(self) -> Path:
        """The socket of this bench's own MariaDB."""
        return self.root / "mariadb" / "mariadb.socket"


def config_files(bench: Bench, places: Places) -> dict[str, str]:
    """The files of slurm.conf's directory by name, the hook with them."""
    return {
        "slurm.conf": slurm_conf(bench, places),
        "gres.conf": _gres_conf(bench, places),
        "cgroup.conf": _cgroup_conf(places.version),
        **bench.beside,
        "job_submit.lua": bench.hook,
    }


def slurm_conf(bench: Bench, places: Places) -> str:
    """slurm.conf: one host, a slurmd a node, no cgroups."""
    gpu_types = sorted({node.gpu_type for node in bench.nodes if node.gpu_type})
    lines = [
        "ClusterName=bench",
        f"SlurmctldHost={places.host}(127.0.0.1)",
        f"SlurmctldPort={places.controller_port}",
        f"SlurmUser={places.slurm_user}",
        f"SlurmdUser={places.slurmd_user}",
        f"AuthInfo=socket={places.munge_socket}",
        f"StateSaveLocation={places.root}/state",
        f"SlurmdSpoolDir={places.root}/spool/%n",
        f"SlurmctldPidFile={places.root}/run/slurmctld.pid",
        f"SlurmdPidFile={places.root}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={places.root}/log/slurmctld.log",
        f"SlurmdLogFile={places.root}/log/slurmd-%n.log",
        "SlurmctldSyslogDebug=quiet",
        "SlurmdSyslogDebug=quiet",
        *([f"PluginDir={places.plugin_dir}"] if places.plugin_dir else []),
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "PropagateResourceLimits=NONE",
        "ReturnToService=2",
        "TreeWidth=65533",
        "KillWait=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={','.join(bench.scheduler)}",
        f"PriorityType=priority/{bench.priority}",
        "JobSubmitPlugins=lua",
        "SlurmdParameters=config_overrides",
        "GresTypes=gpu",
        *(_accounting(gpu_types, places) if bench.accounting else []),
        *(_node(n, i, places) for i, n in enumerate(bench.nodes)),
        *(_partition(partition) for partition in bench.partitions),
        *bench.lines,
    ]
    return "\n".join(lines) + "\n"


def _gres_conf(bench: Bench, places: Places) -> str:
    """gres.conf: an empty file stands for each GPU."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type={node.gpu_type} "
        f"File={places.root}/gpu/{node.name}-[0-{node.gpus - 1}]\n"
        for node in bench.nodes
        if node.gpus
    )


def _cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf: 22.05 knows no plugin "disabled", the newer ones want to be told."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else ""


def slurmdbd_conf(places: Places) -> str:
    """slurmdbd.conf: StorageHost=localhost is the Unix socket that MYSQL_UNIX_PORT names."""
    return "\n".join(
        [
            f"DbdHost={places.host}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={places.database_port}",
            f"SlurmUser={places.slurm_user}",
            f"AuthInfo=socket={places.munge_socket}",
            f"PidFile={places.root}/run/slurmdbd.pid",
            f"LogFile={places.root}/log/slurmdbd.log",
            *([f"PluginDir={places.plugin_dir}"] if places.plugin_dir else []),
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=slurm",
            "StorageLoc=slurm_acct",
            "",
        ]
    )


def _accounting(gpu_types: Sequence[str], places: Places) -> list[str]:
    tres = ",".join(["gres/gpu", *(f"gres/gpu:{gpu_type}" for gpu_type in gpu_types)])
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={places.database_port}",
        f"AccountingStoragePass={places.munge_socket}",
        "AccountingStoreFlags=job_comment,job_script",
        f"AccountingStorageTRES={tres}",
    ]


def _node(node: NodeSpec, index: int, places: Places) -> str:
    words = [
        f"NodeName={node.name}",
        f"NodeHostname=bench-{node.name}",
        f"NodeAddr={places.address_prefix}.{index + 1}",
        f"Port={places.node_ports[index]}",
        f"CPUs={CPUS}",
        f"RealMemory={MEMORY_MB}",
        *([f"Gres={node.gres}"] if node.gres else []),
        *([f"Feature={','.join(node.features)}"] if node.features else []),
        "State=UNKNOWN",
    ]
    return " ".join(words)


def _partition(partition: PartitionSpec) -> str:
    words = [
        f"PartitionName={partition.name}",
        f"Nodes={','.join(partition.nodes)}",
        f"Default={'YES' if partition.default else 'NO'}",
        f"MaxTime={partition.max_min or 'INFINITE'}",
        *([f"DefaultTime={partition.default_min}"] if partition.default_min else []),
        "State=UP",
        partition.more,
    ]
    return " ".join(words).rstrip()
