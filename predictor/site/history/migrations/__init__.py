"""Every schema a history ever had, as alembic revisions; ``versions`` is in order of the names."""
