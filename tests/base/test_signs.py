"""Which outputs fall where others rise."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.base import Targets
from skvbgp.base._signs import align, choose, compare_signs, find_signs, number


def make_values(signs, seen, n=150, d=2):
    """Values of outputs of one function, by the rows in which each was seen."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (n, d))
    f = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1])
    rows = np.vstack(
        [
            np.hstack([X[own], np.tile(one, (len(own), 1))])
            for own, one in zip(seen, np.eye(len(signs)), strict=True)
        ]
    )
    y = np.concatenate([s * f[own] for s, own in zip(signs, seen, strict=True)])
    return SimpleNamespace(X=rows, y=Targets(2.0 * y + 0.2 * rng.standard_normal(len(y))))


@pytest.mark.parametrize("signs", [[1, 1, 1], [1, -1, 1], [1, -1, -1], [1, 1, -1]])
@pytest.mark.every_nth("signs", 2)
def test_signs_of_one_function(signs):
    """The third output shares no row with the others."""
    values = make_values(signs, [np.arange(60), np.arange(40, 100), np.arange(100, 150)])
    assert_array_equal(find_signs(values, 3), signs)
    values.X[::9, 1] = np.nan
    assert_array_equal(find_signs(values, 3), signs)


def test_evidence_of_a_sign_is_that_of_the_other_one_turned_round():
    values = make_values([1, -1], [np.arange(50), np.arange(50)])
    X, y = values.X[:, :2], values.y.y
    lead = compare_signs(X, y, 50)
    assert lead < -10.0
    assert_allclose(compare_signs(X, np.where(np.arange(100) < 50, y, -y), 50), -lead)


def test_outputs_without_a_common_cause_stay_as_they_are():
    assert_array_equal(align(np.zeros((3, 3))), 1.0)


def test_align_finds_the_best_signs():
    rng = np.random.default_rng(0)
    for t in (2, 3, 5, 12):  # of twelve, the first guess is not the best
        lead = rng.standard_normal((t, t))
        lead = np.where(np.eye(t), 0.0, lead + lead.T)
        found = align(lead)
        assert found[0] == 1.0
        turned = found * (1.0 - 2.0 * np.eye(t))  # any single one
        assert np.all(found @ lead @ found >= np.einsum("ij,jk,ik->i", turned, lead, turned))


def test_places_of_both_outputs_come_first():
    X = np.array([[1.0, 2.0], [3.0, -0.0], [5.0, 6.0], [3.0, 0.0], [1.0, 2.0], [7.0, 7.0]])
    keys = number(X)
    assert keys[0] == keys[4]
    assert keys[1] == keys[3]
    assert len(set(keys)) == 4
    first, second = np.array([2, 1, 0]), np.array([5, 4, 3])
    a, b = choose(first, second, keys), choose(second, first, keys)
    assert_array_equal(keys[a[:2]], keys[b[:2]])
    assert (a[2], b[2]) == (2, 5)
