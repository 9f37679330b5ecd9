"""Ended jobs of Slurm for the history: what accounting and the marks on them tell."""
