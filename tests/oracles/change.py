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


def find_change(surprise, odds, cap):
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
    rest = surprise[first:]
    return first + int(np.argmax([explain(rest, cap, c) for c in range(len(rest))])), True
