"""What ended jobs were asked, predicted and measured: one row a job, in SQLite or PostgreSQL."""
