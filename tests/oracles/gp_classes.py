"""Literal twins of the classes of skvbgp.gp: what is left out, is by solving without it."""

import numpy as np


def find_frequencies(counts):
    """Frequencies of the classes, with one more vote that all of them share."""
    K = counts.shape[1]
    return (counts.sum(axis=0) + 1.0 / K) / (counts.sum() + 1.0)


def predict_place(K, k, k_own, counts, frequencies, noise):
    """Means of the classes' functions and their variance at one place."""
    sizes = counts.sum(axis=1)
    targets = counts / sizes[:, None] - frequencies
    C = K + np.diag(noise / sizes)
    return k @ np.linalg.solve(C, targets), k_own - k @ np.linalg.solve(C, k)


def find_probabilities(mean, variance, frequencies, slope, damping, width):
    """Of the classes at one place."""
    shares, e = frequencies + mean, np.exp(0.5 / width)
    half = e / (1.0 + e) / np.log(1.0 + e) / width  # slope of the logarithm at a half
    power = slope / half / np.sqrt(1.0 + damping * variance)
    rounded, origin = (np.log(1.0 + np.exp(f / width)) for f in (shares, frequencies))
    odds = frequencies * (rounded / origin) ** power
    return odds / odds.sum()


def leave_out(K, counts, frequencies, noise):
    """Means and variance at every place, from all the others."""
    moments = []
    for i in range(len(K)):
        others = np.arange(len(K)) != i
        known = K[np.ix_(others, others)], K[others, i], K[i, i], counts[others]
        moments.append(predict_place(*known, frequencies, noise))
    means, variances = zip(*moments, strict=True)
    return np.array(means), np.array(variances)


def leave_out_votes(K, counts, units, frequencies, noise):
    """Place, class, mean and variance of every vote, from all other votes."""
    result = []
    for i, c in zip(*np.nonzero(counts), strict=True):
        rest = counts.copy()
        rest[i, c] -= units[c]
        known = rest.sum(axis=1) > 1e-12
        given = K[np.ix_(known, known)], K[known, i], K[i, i], rest[known]
        result.append((i, c, *predict_place(*given, frequencies, noise)))
    return result


def measure_log_probability(K, counts, frequencies, noise, slope, damping, width, units=None):
    """Log probability of all votes given the other places or, with units, the other votes."""
    total = 0.0
    if units is not None:
        for i, c, *given in leave_out_votes(K, counts, units, frequencies, noise):
            p = find_probabilities(*given, frequencies, slope, damping, width)
            total += counts[i, c] * np.log(p[c])
        return total
    for i, given in enumerate(zip(*leave_out(K, counts, frequencies, noise), strict=True)):
        p = find_probabilities(*given, frequencies, slope, damping, width)
        total += counts[i] @ np.log(p)
    return total
