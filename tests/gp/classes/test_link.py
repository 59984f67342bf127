"""From moments to class probabilities."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.gp.classes._link import Link
from tests.derivatives import numerical_gradient
from tests.oracles import gp_classes as oracle

LOG_FREQUENCIES = np.log([0.5, 0.3, 0.2])


@pytest.fixture
def data(rng):
    counts = np.eye(3)[rng.integers(3, size=40)] * rng.uniform(0.5, 2.0, (40, 1))
    mean = counts - 0.4 + rng.standard_normal((40, 3))
    return mean, rng.uniform(0.1, 2.0, 40), counts


def test_probabilities(data):
    mean, variance, _ = data
    found = np.exp(Link(3.0, 0.6, 0.2).log_probabilities(mean, variance, LOG_FREQUENCIES))
    for i in range(40):
        expected = oracle.find_probabilities(
            mean[i], variance[i], np.exp(LOG_FREQUENCIES), 3.0, 0.6, 0.2
        )
        assert_allclose(found[i], expected)


def test_gradients_of_the_score(data):
    mean, variance, counts = data

    def score(mean, variance, vector):
        return Link.of(vector).score(mean, variance, counts, LOG_FREQUENCIES)[0]

    link = Link(3.0, 0.6, 0.2)
    vector = link.vector
    _, d_mean, d_variance, d_vector = link.score(mean, variance, counts, LOG_FREQUENCIES)
    numeric = [
        numerical_gradient(lambda m: score(m, variance, vector), mean),
        numerical_gradient(lambda v: score(mean, v, vector), variance),
        numerical_gradient(lambda x: score(mean, variance, x), vector),
    ]
    for found, expected in zip([d_mean, d_variance, d_vector], numeric, strict=True):
        assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
    numeric = numerical_gradient(lambda x: Link.of(x).log_prior()[0], vector)
    assert_allclose(Link(3.0, 0.6, 0.2).log_prior()[1], numeric, rtol=1e-7)


def test_nothing_known_leaves_the_frequencies():
    log_p = Link().log_probabilities(np.zeros((1, 3)), np.ones(1), LOG_FREQUENCIES)
    assert_allclose(log_p[0], LOG_FREQUENCIES)


def test_steep_enough_for_what_is_sure_and_no_steeper(data):
    """Labels drawn from a link are explained by it."""
    rng = np.random.default_rng(1)
    mean, variance = 0.3 * rng.standard_normal((4000, 3)), rng.uniform(0.0, 3.0, 4000)
    truth = Link(3.0, 0.5, 0.2)
    p = np.exp(truth.log_probabilities(mean, variance, LOG_FREQUENCIES))
    drawn = (rng.random((4000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    learned = Link().learn(mean, variance, np.eye(3)[drawn], LOG_FREQUENCIES)
    assert_allclose(learned.slope, 3.0, rtol=0.1)
    assert_allclose(learned.damping, 0.5, rtol=0.3)
