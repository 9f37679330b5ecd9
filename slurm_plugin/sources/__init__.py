"""Slurm's nodes, partitions, queue and ended jobs: pyslurm, --json, or parsable text."""
