"""Literal twins of what says that a function has changed: one loop per sum."""

import numpy as np
from scipy.stats import norm


def explain(surprise, cap, c):
    """Log density of z with squares that are capped: N(0, 1) up to row c, N(0, v) from there on.

    Of all v of one at least, the best one.
    """
    z = [np.sqrt(min(value, cap)) for value in surprise]
    v = max(1.0, sum(value**2 for value in z[c:]) / len(z[c:]))
    return sum(norm.logpdf(value) for value in z[:c]) + sum(
        norm.logpdf(value, scale=np.sqrt(v)) for value in z[c:]
    )


def lead_of_best_start(is_better):
    """The largest log likelihood ratio of the last rows, of any number of them or none."""
    ratio = [
        np.log((2 / 3) / (1 / 2)) if better else np.log((1 / 3) / (1 / 2)) for better in is_better
    ]
    return max(sum(ratio[start:]) for start in range(len(ratio) + 1))
