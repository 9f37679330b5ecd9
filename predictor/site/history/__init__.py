"""What ended jobs were asked, predicted and measured: one row a job, in SQLite or PostgreSQL."""

# In a home: how its history keeps names, and where it is.
SETTINGS_NAME = "history.yaml"
