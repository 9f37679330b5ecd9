"""What a job asked for beside GPUs, the signature of its script, and what it printed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
WHOLE = ("cpus", "memory_bytes")
TEXTS = ("script", "directory", "printed_unit")
NUMBERS = ("printed_at", "printed_total", "printed_seconds_per_unit")


def upgrade() -> None:
    """Columns that are NULL in the rows that are there."""
    for name in WHOLE:
        op.add_column("runs", sa.Column(name, sa.BigInteger))
    for name in TEXTS:
        op.add_column("runs", sa.Column(name, TEXT))
    for name in NUMBERS:
        op.add_column("runs", sa.Column(name, sa.Double))
