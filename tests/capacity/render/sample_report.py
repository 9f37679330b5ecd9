"""Reports made by hand: a full one, an empty one, one with hostile names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from predictor.site.capacity.report_data import (
    Alternative,
    Backlog,
    CapacityReport,
    DemandForecast,
    Dimension,
    GpuHours,
    JobWaste,
    LimitUse,
    Loss,
    MeasuredUse,
    Opportunity,
    OpportunityKind,
    Origin,
    PredictionQuality,
    Range,
    Scenario,
    SetAside,
    Share,
    TensorCoreUse,
    Use,
    WaitBySize,
    WaitCause,
    WaitingJob,
    WasteKind,
    WeekDemand,
    WhatIf,
)
from predictor.site.history.ingest import Period
from predictor.site.history.run import LimitBy

Make = Callable[[], CapacityReport]
DAY_S = 86400.0
SINCE_S = 20000 * DAY_S
UNTIL_S = SINCE_S + 14 * DAY_S
GPUS = {"a100-sxm4-80gb": 16, "v100-sxm2-16gb": 32}
NAMES = {
    Dimension.PARTITION: ("gpu", "long"),
    Dimension.GPU_TYPE: tuple(GPUS),
    Dimension.ACCOUNT: tuple(f"lab{i:02d}" for i in range(30)),
    Dimension.USER: ("ada", "grace", "edsger"),
    Dimension.MODEL: ("resnet50", "bert-base", "unknown"),
    Dimension.PRECISION: ("amp", "fp32", "unknown"),
}
SCRIPT = "<script>document.title='owned'</script>"
HOSTILE = (
    SCRIPT,
    '"><img src=x onerror="document.title=\'owned\'">',
    "'{{ 7*7 }} ]]> </svg></title></style>",
    "\u202egnp.exe\u2066 \x1b[31m \x00",
    "שלום עולם",
    "$\\frac{1}{2}$ 模型",
    '=HYPERLINK("x")',
    "x" * 10_000,
)


def wide(median: float) -> Range:
    return Range(low=0.6 * median, median=median, high=1.7 * median)


def near(median: float) -> Range:
    return Range(low=0.75 * median, median=median, high=1.4 * median)


def hours(scale: float) -> GpuHours:
    return GpuHours(
        completed=60 * scale,
        failed=6 * scale,
        timed_out=4 * scale,
        cancelled=5 * scale,
        preempted=1 * scale,
        running=9 * scale,
    )


def shares(names: tuple[str, ...], scale: float) -> tuple[Share, ...]:
    weights = [1 / (i + 1) for i in range(len(names))]
    total = sum(weights)
    return tuple(
        Share(
            key=name,
            jobs=10 + i,
            hours=hours(scale * weight / total),
            unused_gpu_hours=40 * scale * weight / total,
        )
        for i, (name, weight) in enumerate(zip(names, weights, strict=True))
    )


def with_idle(types: tuple[Share, ...]) -> tuple[Share, ...]:
    return tuple(
        replace(each, idle_gpu_hours=3000.0, idle_wanted_gpu_hours=1200.0) for each in types
    )


def full() -> CapacityReport:
    """Every section filled; marked as sample."""
    slots = tuple(
        Use(
            start_s=SINCE_S + i * 6 * 3600,
            hours=hours(1.5 + i % 4),
            capacity=48 * 6.0,
            waiting_gpus=float(3 * (i % 5)),
        )
        for i in range(56)
    )
    scale = sum(1.5 + i % 4 for i in range(56))
    return CapacityReport(
        made_s=UNTIL_S,
        title="GPU capacity",
        version="0.1.0",
        currency="EUR",
        origin=Origin(
            kind="history",
            name="sample.sqlite",
            jobs=1234,
            sample=True,
            set_aside=(SetAside(reason="it asked for no GPU", jobs=4, example="17"),),
        ),
        period=Period(since_s=SINCE_S, until_s=UNTIL_S),
        gpus=GPUS,
        hours=hours(scale),
        capacity=48 * 14 * 24.0,
        splits={d: shares(names, scale) for d, names in NAMES.items()}
        | {Dimension.GPU_TYPE: with_idle(shares(tuple(GPUS), scale))},
        use=slots,
        waits=tuple(
            WaitBySize(
                size=size, jobs=100, median_s=60.0 * 4**i, p95_s=900.0 * 4**i, longest_s=9e3 * 4**i
            )
            for i, size in enumerate(("1", "2-4", "5-8", "9-16"))
        ),
        limits=(
            LimitUse(
                by=LimitBy.US,
                jobs=500,
                requested_hours=9000.0,
                accuracy=0.71,
                killed=3,
                killed_gpu_hours=40.0,
                unused_gpu_hours=500.0,
            ),
            LimitUse(
                by=LimitBy.USER,
                jobs=700,
                requested_hours=30000.0,
                accuracy=0.23,
                killed=30,
                killed_gpu_hours=400.0,
                unused_gpu_hours=9000.0,
            ),
            LimitUse(
                by=None,
                jobs=34,
                requested_hours=0.0,
                accuracy=None,
                killed=0,
                killed_gpu_hours=0.0,
                unused_gpu_hours=0.0,
            ),
        ),
        predictions=(
            PredictionQuality(
                key="resnet50",
                jobs=80,
                mean_error=0.09,
                median_error=0.07,
                coverage=0.94,
                level=0.95,
            ),
            PredictionQuality(
                key="bert-base",
                jobs=60,
                mean_error=0.15,
                median_error=0.11,
                coverage=None,
                level=0.95,
            ),
        ),
        losses=tuple(
            Loss(
                user=user,
                account=f"lab{i:02d}",
                state=state,
                jobs=3 + i,
                gpu_hours=400.0 / (i + 1),
                median_run_s=300.0 * (i + 1) ** 3,
                example=str(900 + i),
                gpus=4,
                scheduler="slurm",
            )
            for i, (user, state) in enumerate(
                zip(("grace", "ada", "edsger"), ("timeout", "failed", "cancelled"), strict=True)
            )
        ),
        wait_causes=(
            WaitCause(cause="taken", jobs=300, gpu_hours=900.0),
            WaitCause(cause="free", jobs=200, gpu_hours=500.0),
            WaitCause(cause="after job 4001", jobs=2, gpu_hours=8.0, now=True),
        ),
        measured=tuple(
            MeasuredUse(
                user=user,
                jobs=20,
                gpu_hours=900.0 / (i + 1),
                used_gpu_hours=500.0 / (i + 1),
                idle_gpu_hours=90.0 * i,
                predicted_gpu_hours=850.0 if i else None,
                gpu_memory_share=0.4,
                host_memory_share=0.1,
                kwh=300.0,
            )
            for i, user in enumerate(("ada", "grace", "edsger"))
        ),
        waste=tuple(
            JobWaste(
                job_id=str(700 + i),
                user="grace",
                gpus=8,
                kind=kind,
                gpu_hours=80.0,
                wasted_gpu_hours=60.0 / (i + 1),
                idle=6,
                measured=8,
                utilisation=0.2,
                host_memory_share=0.1,
            )
            for i, kind in enumerate(WasteKind)
        ),
        tensor_cores=tuple(
            TensorCoreUse(
                gpu_type=gpu,
                fp32_hours=900.0 / (i + 1),
                low_precision_hours=2500.0,
                unknown_hours=700.0,
            )
            for i, gpu in enumerate(GPUS)
        ),
        opportunities=(
            Opportunity(
                kind=OpportunityKind.MIXED_PRECISION,
                what="resnet50 in fp32 on a100-sxm4-80gb",
                users=("ada", "grace", "edsger", "alan"),
                jobs=41,
                gpu_hours=1800.0,
                saved_gpu_hours=wide(900.0),
                saved_cost=wide(1600.0),
                saved_kwh=wide(400.0),
                saved_co2e_kg=wide(120.0),
                evidence="same model measured on this GPU",
                change="--amp",
                command="precision-time compare resnet50 --gpu a100 --precision amp",
            ),
            Opportunity(
                kind=OpportunityKind.FEWER_GPUS,
                what="bert-base fp32 on 8 x a100: 2 x a100, 1.2 times as long",
                users=("grace",),
                jobs=12,
                gpu_hours=600.0,
                saved_gpu_hours=wide(2000.0),
                saved_cost=None,
                saved_kwh=None,
                saved_co2e_kg=None,
                evidence="same family measured",
                change="#SBATCH --gpus=a100:2",
                command="precision-time predict bert-base --gpu a100 --gpus 2 --precision fp32",
            ),
        ),
        backlog=tuple(
            Backlog(
                gpu_type=gpu,
                jobs=20,
                gpu_hours=wide(300.0),
                drain_s=wide((i + 1) * 86400.0),
            )
            for i, gpu in enumerate(GPUS)
        ),
        queue=tuple(
            WaitingJob(
                job_id=str(4000 + i),
                name=f"train-{i}",
                user="ada",
                gpus=4,
                gpu_type="a100-sxm4-80gb",
                starts_s=wide(600.0 * i),
                ends_s=wide(7200.0 + 900 * i),
                evidence="same model measured",
            )
            for i in range(20)
        ),
        forecasts=tuple(
            forecast(gpu, count, UNTIL_S + 14 * DAY_S if i else None)
            for i, (gpu, count) in enumerate(GPUS.items())
        ),
        whatif=WhatIf(
            change="add 16 a100-sxm4-80gb",
            baseline=scenario("as it was", 16, 5400.0),
            changed=scenario("changed", 32, 1800.0),
            history_mean_wait_s=6000.0,
            unmoved_jobs=25,
        ),
        alternatives=tuple(
            Alternative(
                change=change,
                jobs=1200,
                mean_wait_s=5400.0 + longer_s,
                p95_wait_s=27000.0,
                change_s=Range(low=2 * longer_s, median=longer_s, high=0.5 * longer_s),
                utilisation=0.7,
                gpu_hours=11000.0,
            )
            for change, longer_s in (
                ("as it was", 0.0),
                ("+8 a100-sxm4-80gb", -2400.0),
                ("mixed precision", -1200.0),
                ("order by expected run time", -1800.0),
            )
        ),
        notes=("Energy of v100-sxm2-16gb is not known.",),
    )


def forecast(key: str, gpus: int, saturates_s: float | None) -> DemandForecast:
    past = [
        WeekDemand(start_s=SINCE_S + 7 * week * DAY_S, measured=110.0 * gpus + 40 * week)
        for week in range(-10, 2)
    ]
    coming = [
        WeekDemand(
            start_s=SINCE_S + 7 * week * DAY_S,
            expected=wide(130.0 * gpus + 60 * week),
            likely=near(130.0 * gpus + 60 * week),
        )
        for week in range(2, 6)
    ]
    return DemandForecast(
        key=key,
        weeks=(*past, *coming),
        capacity=168.0 * gpus,
        saturates_s=saturates_s,
        method="exponential smoothing",
    )


def scenario(name: str, a100s: int, wait_s: float) -> Scenario:
    return Scenario(
        name=name,
        gpus=GPUS | {"a100-sxm4-80gb": a100s},
        jobs=1200,
        never_started=1,
        mean_wait_s=wait_s,
        median_wait_s=wait_s / 3,
        p95_wait_s=wait_s * 5,
        utilisation=0.7,
        gpu_hours=11000.0,
        kwh=4000.0,
        cost=None,
    )


def empty() -> CapacityReport:
    """A history without jobs on a cluster that is not known."""
    return CapacityReport(
        made_s=UNTIL_S,
        title="GPU capacity",
        version="0.1.0",
        currency=None,
        origin=Origin(kind="history", name="empty.sqlite", jobs=0),
        period=Period(since_s=SINCE_S, until_s=UNTIL_S),
        gpus={},
        hours=GpuHours(),
        capacity=None,
        splits={},
        use=(),
        waits=(),
        limits=(),
        predictions=(),
        tensor_cores=(),
    )


def hostile() -> CapacityReport:
    """Every name that a user can choose is one that means harm."""
    base = full()
    job, first = base.queue[0], base.opportunities[0]
    return replace(
        base,
        title=SCRIPT,
        splits={d: shares(HOSTILE, 100.0) for d in Dimension},
        queue=tuple(replace(job, name=n, user=n, job_id=n) for n in HOSTILE),
        opportunities=tuple(
            replace(first, what=n, users=(n,), change=n, command=n, evidence=n) for n in HOSTILE
        ),
        backlog=tuple(replace(base.backlog[0], gpu_type=name) for name in HOSTILE),
        forecasts=tuple(replace(base.forecasts[0], key=name) for name in HOSTILE[:4]),
        notes=HOSTILE,
    )
