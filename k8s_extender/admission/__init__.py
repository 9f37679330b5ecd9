"""Admission: predictions and deadlines filled in where training jobs are created.

review      AdmissionReview v1: a body read, an answer written
gpu_pods    which pods of an object ask for GPUs
candidates  which GPU types the pods may land on
forecast    how long the job runs on the slowest of them
limits      the limits a user stated, and those we fill
notes       what is written on objects and said to users
patch       the JSON patch: adds, never changes
admit       all of it together

`policy.yaml` does the part of the deadline without a webhook.
"""

from .admit import Admission, Reviewed, ReviewOutcome

__all__ = ["Admission", "ReviewOutcome", "Reviewed"]
