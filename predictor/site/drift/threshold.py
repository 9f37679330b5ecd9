"""Where the alarm of a chart is set so that false ones are as rare as was chosen.

A run adds to a chart for slower and one for faster. False alarms of independent charts add up to
runs over mean run length whatever the number of streams, so one limit controls all together.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np

# A lasting shift of the mean score by twice this is found soonest: about one standard deviation of
# the runs of one configuration.
REFERENCE = 0.4
HALF_WIDTH = sqrt(3.0)  # of the uniform distribution with variance 1
STATES = 160
LIMITS = (1.5, 40.0)
TOLERANCE = 1e-3
YEAR_S = 365.25 * 86400


@lru_cache(maxsize=256)
def mean_runs_between_alarms(limit: float) -> float:
    """Runs between false alarms of the two charts of one stream at a limit.

    The sum as a Markov chain of STATES levels (Brook and Evans, Biometrika 59 (1972) 539), with
    scores uniform of variance 1. Ranks among few are less extreme, so they alarm less often.
    """
    width = 2 * limit / (2 * STATES - 1)
    levels = width * np.arange(STATES)
    edges = levels[None, :] + width / 2 + REFERENCE - levels[:, None]
    reached = np.clip((edges + HALF_WIDTH) / (2 * HALF_WIDTH), 0.0, 1.0)
    moves = np.diff(reached, axis=1, prepend=0.0)
    runs = np.linalg.solve(np.eye(STATES) - moves, np.ones(STATES))
    return float(runs[0]) / 2


def limit_for(false_alarms_per_year: float, scores_per_year: float) -> float:
    """The limit at which all charts together raise so many false alarms a year.

    ``scores_per_year`` counts a run once in every stream it belongs to.
    """
    wanted = scores_per_year / false_alarms_per_year
    low, high = LIMITS
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        if mean_runs_between_alarms(middle) < wanted:
            low = middle
        else:
            high = middle
    return high
