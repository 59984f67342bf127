"""Probabilities of more than two classes, and what is learned of them from rows left out."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr

from skvbgp._core.exclusion import learn_exclusion, log_probabilities


def test_with_full_exclusion_exactly_one_class_holds(rng):
    """By all vectors of independent labels."""
    scores = rng.standard_normal((1, 4))
    p = ndtr(scores[0])
    vectors = itertools.product([0, 1], repeat=4)
    of_vectors = {labels: np.prod(np.where(labels, p, 1.0 - p)) for labels in vectors}
    alone = np.array([of_vectors[tuple(row)] for row in np.eye(4, dtype=int)])
    assert_allclose(np.exp(log_probabilities(scores, 1.0))[0], alone / alone.sum())


def test_without_exclusion_the_own_problems_are_normalised(rng):
    scores = rng.standard_normal((5, 3))
    p = ndtr(scores)
    assert_allclose(np.exp(log_probabilities(scores, 0.0)), p / p.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("exclusion", [0.0, 0.4, 1.0])
def test_far_scores_and_order(exclusion, rng):
    far = np.array([[-60.0, -50.0, -70.0], [60.0, 50.0, 70.0]])
    far = np.exp(log_probabilities(far, exclusion))
    assert_allclose(far.sum(axis=1), 1.0)
    assert np.isfinite(far).all() and far[0].argmax() == 1
    scores = rng.standard_normal((20, 4))
    assert np.array_equal(
        log_probabilities(scores, exclusion).argmax(axis=1), scores.argmax(axis=1)
    )


def draw(rng, exclusion, n=4000):
    """Scores, and labels that have the probabilities of some exclusion."""
    scores = rng.standard_normal((n, 4)) - 1.0
    cumulated = np.cumsum(np.exp(log_probabilities(scores, exclusion)), axis=1)
    return scores, np.minimum(np.sum(rng.random((n, 1)) > cumulated, axis=1), 3)


@pytest.mark.thorough
def test_exclusion_is_found_from_below(rng):
    """Two standard errors below the truth."""
    found = [learn_exclusion(*draw(rng, 0.6, n=40_000), None) for _ in range(5)]
    assert 0.48 < min(found) and max(found) < 0.62
    assert learn_exclusion(*draw(rng, 0.0), None) == 0.0


def test_few_rows_exclude_nothing(rng):
    """In most draws; the best value alone would be zero in a third of them."""
    found = [learn_exclusion(*draw(rng, 0.5, n=12), None) for _ in range(30)]
    assert found.count(0.0) >= 20


def test_weights_are_copies(rng):
    scores, codes = draw(rng, 0.6, n=300)
    weight = rng.integers(1, 4, 300)
    copies = np.repeat(np.arange(300), weight)
    weighted = learn_exclusion(scores, codes, weight.astype(float))
    assert weighted == learn_exclusion(scores[copies], codes[copies], None)


def test_few_heavy_rows_may_exclude_less_than_many_others():
    """The best exclusion is that of all copies."""
    rng = np.random.default_rng(0)
    (heavy, ours), (light, others) = draw(rng, 0.0, n=400), draw(rng, 1.0)
    scores, codes = np.vstack([heavy, light]), np.append(ours, others)
    weight = np.repeat([40, 1], [400, 4000])
    found = learn_exclusion(scores, codes, weight.astype(float))
    expected = learn_exclusion(scores.repeat(weight, axis=0), codes.repeat(weight), None)
    assert found == expected > 0.0
