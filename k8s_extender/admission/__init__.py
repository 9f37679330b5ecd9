"""Admission: placement, predictions and deadlines filled in where training jobs are created.

`policy.yaml` does the part of the deadline without a webhook.
"""

from .admit import Admission, Decision, Reviewed, ReviewOutcome

__all__ = ["Admission", "Decision", "ReviewOutcome", "Reviewed"]
