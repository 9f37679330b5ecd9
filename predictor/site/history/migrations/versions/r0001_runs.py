"""One row a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TEXTS = ("name", "user", "account", "partition", "qos", "state")
MORE_TEXTS = ("stated", "decision", "submit_line", "constraint")


def upgrade() -> None:
    """Make the table of the runs."""
    op.create_table(
        "runs",
        sa.Column("scheduler", TEXT, primary_key=True),
        sa.Column("cluster", TEXT, primary_key=True),
        sa.Column("job_id", TEXT, primary_key=True),
        sa.Column("submit_second", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, TEXT, nullable=False) for name in TEXTS),
        sa.Column("submit_s", sa.Double, nullable=False),
        sa.Column("start_s", sa.Double),
        sa.Column("end_s", sa.Double, nullable=False),
        sa.Column("limit_s", sa.Double),
        sa.Column("gpus", sa.BigInteger, nullable=False),
        sa.Column("gpu_type", TEXT),
        sa.Column("nodes", sa.BigInteger, nullable=False),
        sa.Column("node_names", TEXT, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in MORE_TEXTS),
        sa.Column("energy_j", sa.Double),
        sa.Column("asked", TEXT, nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("model", TEXT),
        sa.Column("precision", TEXT),
        sa.Column("gpu", TEXT),
        sa.Column("limit_by", TEXT),
        sa.Column("predicted_step_s", sa.Double),
        sa.Column("predicted_median_s", sa.Double),
        sa.Column("predicted_upper_s", sa.Double),
        sa.Column("predicted_level", sa.Double),
        sa.Column("predicted_gpu", TEXT),
        sa.Column("predicted_gpus", sa.BigInteger),
        sa.Column("predicted_version", TEXT),
        sa.Column("predicted_tier", TEXT),
        sa.Column("predicted_limit_s", sa.Double),
        sa.Column("reported_step_s", sa.Double),
        sa.Column("reported_steps", sa.BigInteger),
        sa.Column("reported_step_s_spread", sa.Double),
        sa.Column("reported_total_steps", sa.BigInteger),
        sa.Column("reported_startup_s", sa.Double),
        sa.Column("reported_paused_s", sa.Double),
        sa.Column("reported_loader_bound", sa.Double),
        sa.Column("ingested_s", sa.Double, nullable=False),
    )
