"""How far each ingest got, how the history is kept, and an index to read by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make what stands beside the runs."""
    op.create_table(
        "cursors",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "meta", sa.Column("name", TEXT, primary_key=True), sa.Column("value", TEXT, nullable=False)
    )
    op.create_index("runs_by_end", "runs", ["end_s"])
