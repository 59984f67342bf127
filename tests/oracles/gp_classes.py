"""Literal twins of the classes of skvbgp.gp: what is left out, is by solving without it."""

from functools import cache

import numpy as np
from scipy import stats
from scipy.special import log_ndtr, ndtr

from tests.oracles.gp import predict_sparse


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


def leave_out(K, counts, noise, frequencies=None):
    """Means and variance at every place, from all the others; by default of their frequencies."""
    moments = []
    for i in range(len(K)):
        others = np.arange(len(K)) != i
        known = K[np.ix_(others, others)], K[others, i], K[i, i], counts[others]
        own = find_frequencies(counts[others]) if frequencies is None else frequencies
        moments.append(predict_place(*known, own, noise))
    means, variances = zip(*moments, strict=True)
    return np.array(means), np.array(variances)


def leave_out_votes(K, counts, units, noise, frequencies=None):
    """Place, class, mean and variance of every vote, from all other votes; as `leave_out`."""
    result = []
    for i, c in zip(*np.nonzero(counts), strict=True):
        rest = counts.copy()
        rest[i, c] -= units[c]
        known = rest.sum(axis=1) > 1e-12
        given = K[np.ix_(known, known)], K[known, i], K[i, i], rest[known]
        own = find_frequencies(rest) if frequencies is None else frequencies
        result.append((i, c, *predict_place(*given, own, noise)))
    return result


def measure_log_probability(K, counts, frequencies, noise, slope, damping, width, units=None):
    """Log probability of all votes given the other places or, with units, the other votes."""
    total = 0.0
    if units is not None:
        for i, c, *given in leave_out_votes(K, counts, units, noise, frequencies):
            p = find_probabilities(*given, frequencies, slope, damping, width)
            total += counts[i, c] * np.log(p[c])
        return total
    for i, given in enumerate(zip(*leave_out(K, counts, noise, frequencies), strict=True)):
        p = find_probabilities(*given, frequencies, slope, damping, width)
        total += counts[i] @ np.log(p)
    return total


def differentiate_probit(f, counts, t):
    """Log likelihood of votes for the first and second of two classes, and three derivatives in f.

    Of each place; the last two are those of a probit's inverse Mills ratio.
    """
    total = np.zeros((4, len(f)))
    for c, sign in enumerate((-1.0, 1.0)):
        z = sign * f / np.sqrt(t)
        r = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) / ndtr(z)
        dr = -r * (z + r)
        ddr = -dr * (z + r) - r * (1.0 + dr)
        slope = sign / np.sqrt(t)
        total += counts[:, c] * [log_ndtr(z), slope * r, slope**2 * dr, slope**3 * ddr]
    return total


def find_probit_mode(K, mean, counts, t):
    """f of two classes' votes at the maximum of its density, by Newton's method."""
    f = mean.copy()
    for _ in range(100):
        _, g, curvature, _ = differentiate_probit(f, counts, t)
        step = np.linalg.solve(
            np.diag(curvature) - np.linalg.inv(K), g - np.linalg.solve(K, f - mean)
        )
        f = f - step
        if np.max(np.abs(step)) < 1e-14:
            break
    return f


def measure_probit_evidence(K, mean, counts, t):
    """Logarithm, by Laplace's approximation."""
    f = find_probit_mode(K, mean, counts, t)
    value, _, curvature, _ = differentiate_probit(f, counts, t)
    density = stats.multivariate_normal(mean, K, allow_singular=True).logpdf(f)
    precision = np.linalg.inv(K) - np.diag(curvature)
    return value.sum() + density - 0.5 * np.linalg.slogdet(precision / (2.0 * np.pi))[1]


def leave_out_probit_votes(K, mean, counts, units, t):
    """Place, class, mean and variance of f for every vote, from the others' normal parts."""
    f = find_probit_mode(K, mean, counts, t)
    result = []
    for i, c in zip(*np.nonzero(counts), strict=True):
        rest = counts.copy()
        rest[i, c] -= units[c]
        _, g, curvature, _ = differentiate_probit(f, rest, t)
        precision = np.linalg.inv(K) - np.diag(curvature)
        shift = np.linalg.solve(precision, g - curvature * (f - mean))
        result.append((i, c, mean[i] + shift[i], np.linalg.inv(precision)[i, i]))
    return result


def propagate_expectations(K, mean, counts, t):
    """Place and class of every whole vote, precision and shift of its site.

    One vote at a time, whose moments are by quadrature.
    """
    votes = [(i, c) for i, c in zip(*np.nonzero(counts), strict=True) for _ in range(counts[i, c])]
    place, label = np.array(votes).T
    tau, nu = np.zeros(len(votes)), np.zeros(len(votes))
    for _ in range(25):
        before = tau.copy(), nu.copy()
        for k, (i, c) in enumerate(votes):
            centre, variance = condition_on_sites(K, mean, place, tau, nu, without=k)
            tau[k], nu[k] = match_site(centre[i], variance[i, i], c, t[i])
        if np.allclose((tau, nu), before, rtol=1e-11, atol=1e-12):
            break
    return place, label, tau, nu


def condition_on_sites(K, mean, place, tau, nu, without=None):
    """Mean and covariance of f given the sites of votes, or of all but one; K may be singular."""
    kept = np.arange(len(place)) != without
    place, tau, nu = place[kept], tau[kept], nu[kept]
    told = K[:, place] @ np.linalg.inv(np.eye(len(place)) + tau[:, None] * K[np.ix_(place, place)])
    return mean + told @ (nu - tau * mean[place]), K - told @ (tau[:, None] * K[place])


def measure_alike_prior(length_scales, median):
    """Log density, up to a constant, of length scales that have a level, and are near it."""
    log_ratios = np.log(length_scales / median)
    level = np.mean(log_ratios)
    return stats.norm(0.0, 2.0).logpdf(level) + np.sum(stats.norm(level, 0.3).logpdf(log_ratios))


def predict_places_sparse(covariance, Z, X, counts, frequencies, noise, places):
    """Means and variance at places given votes through inducing inputs Z, from dense matrices.

    The noise of a vote is (n,), one for each place of X.
    """
    sizes = counts.sum(axis=1)
    targets = counts / sizes[:, None] - frequencies
    mean, K = predict_sparse(covariance, Z, X, targets, noise / sizes, places)
    return mean, np.diagonal(K)


def leave_out_votes_sparse(covariance, Z, X, counts, units, frequencies, noise, is_known):
    """Place, class, mean and variance of every vote, from all others of the places known."""
    result = []
    for i, c in zip(*np.nonzero(counts), strict=True):
        rest = counts.copy()
        rest[i, c] -= units[c]
        rest[~is_known] = 0.0
        known = rest.sum(axis=1) > 1e-12
        given = X[known], rest[known], frequencies, noise[known], X[i : i + 1]
        mean, variance = predict_places_sparse(covariance, Z, *given)
        result.append((i, c, mean[0], variance[0]))
    return result


def leave_out_versus_rest(K, counts, units, frequencies, own, t, noise):
    """Place, class and the probabilities of all classes for every vote, left out.

    Each class and the rest have a process of their own, of the covariances K, whose functions have
    the variances `own` a priori.
    """

    def pair(votes, c):
        return np.column_stack([votes.sum(axis=1) - votes[:, c], votes[:, c]])

    means = [stats.norm.ppf(frequency) * np.sqrt(noise + own) for frequency in frequencies]
    modes = [find_probit_mode(K, mean, pair(counts, c), t) for c, mean in enumerate(means)]
    result = []
    for i, b in zip(*np.nonzero(counts), strict=True):
        left = counts.copy()
        left[i, b] -= units[b]
        p = np.empty(len(frequencies))
        for c, (mean, f) in enumerate(zip(means, modes, strict=True)):
            rest = pair(left, c)
            _, g, curvature, _ = differentiate_probit(f, rest, t)
            precision = np.linalg.inv(K) - np.diag(curvature)
            centre = mean + np.linalg.solve(precision, g - curvature * (f - mean))
            variance = np.linalg.inv(precision)[i, i]
            p[c] = ndtr(centre[i] / np.sqrt(t[i] + variance))
        result.append((i, b, p / p.sum()))
    return result


def measure_sparse_prior(covariance, Z, X):
    """Covariance of what inducing inputs Z say of places, and what they leave open there."""
    K = covariance(Z, X).T @ np.linalg.solve(covariance(Z), covariance(Z, X))
    return K, covariance.diag(X) - np.diagonal(K)


@cache
def find_nodes():
    """And weights, of a standard normal variable."""
    return np.polynomial.hermite_e.hermegauss(80)


def match_site(mean, variance, label, t):
    """Precision and shift of the site of one vote for the first or second class, by quadrature."""
    nodes, weights = find_nodes()
    f = mean + np.sqrt(variance) * nodes
    p = weights * ndtr((2 * label - 1) * f / np.sqrt(t))
    first = p @ f / p.sum()
    second = p @ (f - first) ** 2 / p.sum()
    return 1.0 / second - 1.0 / variance, first / second - mean / variance
