"""The schema of the first release: one row a job, how far each ingest got, how it is kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TEXTS = (
    *("name", "user", "account", "partition", "qos", "state", "node_names"),
    *("stated", "decision", "submit_line", "constraint", "asked", "origin"),
)
WORDS = (
    *("gpu_type", "model", "precision", "gpu", "limit_by", "script", "directory"),
    *("predicted_gpu", "predicted_version", "predicted_tier", "printed_unit"),
)
TIMES = ("submit_s", "end_s", "ingested_s")
NUMBERS = (
    *("start_s", "limit_s", "energy_j", "predicted_step_s", "predicted_median_s"),
    *("predicted_upper_s", "predicted_level", "predicted_limit_s", "reported_step_s"),
    *("reported_step_s_spread", "reported_startup_s", "reported_paused_s"),
    *("reported_loader_bound", "printed_at", "printed_total", "printed_seconds_per_unit"),
)
WHOLE = ("cpus", "memory_bytes", "predicted_gpus", "reported_steps", "reported_total_steps")


def upgrade() -> None:
    """Make the tables, and the index to read by time."""
    op.create_table(
        "runs",
        sa.Column("scheduler", TEXT, primary_key=True),
        sa.Column("cluster", TEXT, primary_key=True),
        sa.Column("job_id", TEXT, primary_key=True),
        sa.Column("submit_second", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, TEXT, nullable=False) for name in TEXTS),
        *(sa.Column(name, TEXT) for name in WORDS),
        *(sa.Column(name, sa.Double, nullable=False) for name in TIMES),
        *(sa.Column(name, sa.Double) for name in NUMBERS),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("gpus", "nodes")),
        *(sa.Column(name, sa.BigInteger) for name in WHOLE),
    )
    op.create_index("runs_by_end", "runs", ["end_s"])
    op.create_table(
        "cursors",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "meta", sa.Column("name", TEXT, primary_key=True), sa.Column("value", TEXT, nullable=False)
    )
