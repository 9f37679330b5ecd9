"""Time limits and placement for Slurm: the job_submit hook, the daemon it asks, and their tools."""
