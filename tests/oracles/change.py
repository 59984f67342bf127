"""Literal twins of what says that a function has changed: one loop per sum."""

from functools import cache

import numpy as np
from scipy.stats import norm


def place_change(surprise, restarts):
    """The first row after a change, with the least loss on average.

    Errors are N(0, 1) before it and N(0, v) from there on, and one in fifty is of any size. A row
    of the old function that is kept costs as much as v - 1 that are lost (or as one); v is 2, 4
    and so on, up to the largest square.
    """
    growths, n = [2.0], len(surprise)
    while 2.0 * growths[-1] <= max(surprise):
        growths.append(2.0 * growths[-1])

    @cache
    def normal(s, v):
        return norm.pdf(np.sqrt(s), scale=np.sqrt(v))

    @cache
    def log_density(s, v):
        wide = np.mean([normal(s, other) for other in growths])
        return np.log(0.98 * normal(s, v) + 0.02 * wide)

    def score(c, v):
        return sum(log_density(s, v if i >= c else 1.0) for i, s in enumerate(surprise))

    scores = {(c, v): score(c, v) for c in range(n) for v in growths}
    p = {what: np.exp(value - max(scores.values())) for what, value in scores.items()}
    losses = [
        sum(
            p[c, v] * ((v - 1.0 if restarts else 1.0) * max(0, c - k) + max(0, k - c)) for c, v in p
        )
        for k in range(n)
    ]
    return int(np.argmin(losses))


def lead_of_best_start(evidence):
    """The largest log likelihood ratio of the last rows, of any number of them or none."""
    return max(sum(evidence[start:]) for start in range(len(evidence) + 1))


def suspect(surprise, cap):
    """Log density of z if its variance has doubled, less that of N(0, 1); squares are capped."""
    z = np.sqrt(min(surprise, cap))
    return norm.logpdf(z, scale=np.sqrt(2.0)) - norm.logpdf(z)


def suspect_label(p, n_classes, cap):
    """Log probability of a label if half of them are of any class, less that predicted."""
    return min(np.log((p + 1.0 / n_classes) / 2.0) - np.log(p), suspect(np.inf, cap))


def compare(second, first):
    """Log density by either of two models, in equal shares, less that by the first."""
    mixture = 0.5 * np.exp(first) + 0.5 * min(np.exp(second), 10.0 * np.exp(first))
    return np.log(mixture) - first


def look_ahead(y, first, second, n_before, squares):
    """Log density of rows y (n, t) by another model's mean less that by one's own; and sums.

    Each has mean and std (n, t). Both with the variance that the better one's errors say, with five
    rows of the worse one's among them, or of the larger variance if that is less; of outputs that
    were observed, on average. Sums of squares are over these rows and those before, in units of the
    larger variance.
    """
    observed = [[j for j in range(len(row)) if not np.isnan(row[j])] for row in y]

    def errors(mean):
        each = [
            [(y[i][j] - mean[i][j]) ** 2 / max(first[1][i][j], second[1][i][j]) ** 2 for j in known]
            for i, known in enumerate(observed)
        ]
        return [sum(row) / len(row) if row else 0.0 for row in each]

    one, other = errors(first[0]), errors(second[0])
    sums = squares[0] + sum(one), squares[1] + sum(other)
    n = len(y) + n_before
    scale = np.sqrt((min(sums) + 5.0 * min(1.0, max(sums) / n)) / (n + 5.0))
    pairs = zip(np.sqrt(one), np.sqrt(other), strict=True)
    return [norm.logpdf(b, scale=scale) - norm.logpdf(a, scale=scale) for a, b in pairs], sums


def find_change(surprise, odds, cap, restarts):
    """The first row that is kept, and whether it is that of a change.

    Rows are looked at one by one until the best start of a change has so much behind it.
    """
    evidence = [suspect(value, cap) for value in surprise]
    n, leads = len(surprise), []
    for stop in range(1, len(surprise) + 1):
        leads.append(lead_of_best_start(evidence[:stop]))
    is_change = max(leads) >= np.log(odds)
    last = int(np.argmax(leads)) if is_change else n - 1
    first = last + 1
    while first > 0 and leads[first - 1] > 1e-12:
        first -= 1
    if not is_change:
        return first, False
    return first + place_change(surprise[first : last + 1], restarts), True
