"""Predicts how long a training job runs, because it knows precision: the core of precision-time."""
