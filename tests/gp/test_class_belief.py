"""Shares of kernels, against a search of the simplex for the optimum that they promise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp

from skvbgp.gp._class_search import _log_sum, learn_shares


def make_parts(rng, C=3, M=80, K=3):
    parts = rng.dirichlet(np.ones(K), (C, M))
    counts = np.eye(K)[rng.integers(K, size=M)] * rng.integers(1, 4, M)[:, None]
    return np.log(parts), counts


def measure(shares, parts, counts, n_free):
    """The objective, written out."""
    total = 0.0
    for m, k in zip(*np.nonzero(counts), strict=True):
        p = [np.exp(part[m, k] - q / counts.sum()) for part, q in zip(parts, n_free, strict=True)]
        total += counts[m, k] * np.log(np.dot(shares, p))
    return total + 0.5 * np.sum(np.log(shares))


@pytest.mark.parametrize("n_free", [[3, 3, 3], [2, 5, 20]])
def test_no_other_shares_are_better(rng, n_free):
    parts, counts = make_parts(rng)
    shares = learn_shares(parts, counts, n_free)
    assert_allclose(shares.sum(), 1.0)
    best = minimize(
        lambda x: -measure(np.exp(x) / np.exp(x).sum(), parts, counts, n_free), np.zeros(3)
    )
    assert measure(shares, parts, counts, n_free) > -best.fun - 1e-3


def test_more_hyperparameters_cost(rng):
    """As much as kernels that say the same differ in their numbers."""
    (part, *_), counts = make_parts(rng)
    assert_allclose(learn_shares([part, part], counts, [3, 3]), 0.5)
    assert learn_shares([part, part], counts, [3, 30])[0] > 0.7


def test_kernels_that_know_different_votes_share(rng):
    """Where the belief by the sum of log probabilities would take one of them."""
    counts = np.eye(2)[np.zeros(100, dtype=int)]
    known = np.arange(100) < 55
    first, second = (np.log(np.where(side, 0.9, 0.3)) for side in (known, ~known))
    parts = [np.stack([p, np.log1p(-np.exp(p))], axis=1) for p in (first, second)]
    shares = learn_shares(parts, counts, [4, 4])
    assert 0.5 < shares[0] < 0.7


def test_a_vote_that_is_hopeless_for_all(rng):
    parts, counts = make_parts(rng)
    parts[:, 0] = -800.0
    shares = learn_shares(parts, counts, [1, 1, 1])
    assert np.all(shares >= 0.0)
    assert_allclose(shares.sum(), 1.0)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 2000.0])
def test_sums_of_probabilities_are_those_of_scipy(rng, scale):
    """Where many are the largest, too, and some are nothing."""
    joint = scale * rng.standard_normal((4, 200))
    joint[1], joint[2, ::3] = joint[0], -np.inf
    assert_allclose(_log_sum(joint), logsumexp(joint, axis=0), rtol=1e-14)
