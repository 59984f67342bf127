"""Which rows are near."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.gp._rows import Rows, average_weights, cut_groups, draw_groups, weigh_inputs
from skvbgp.kernels import RBF, Constant, Linear, Matern
from tests.gp.cases import make_classes, small, small_classifier

pytestmark = pytest.mark.usefixtures("quick_searches")


def find_by_brute_force(X, places, k):
    distance = np.linalg.norm(places[:, None, :] - X, axis=2)
    return np.sort(np.argsort(distance, axis=1)[:, :k])


def test_rows_come_in_few_chunks_and_none_is_lost(rng):
    rows, sizes = Rows(), []
    X, y = rng.standard_normal((200, 3)), np.arange(200.0)
    for i in range(200):
        rows = rows.plus(X[i : i + 1], y[i : i + 1])
        sizes.append(len(rows.chunks))
    assert max(sizes) <= 8
    assert_array_equal(rows.X, X)
    assert_array_equal(rows.y, y)
    assert len(rows) == 200


def test_adding_rows_leaves_the_others_as_they_were(rng):
    before = Rows().plus(rng.standard_normal((4, 2)), np.zeros(4))
    before.plus(np.ones((2, 2)), np.ones(2))
    assert len(before) == 4


def test_rows_are_those_that_there_were_when_they_came():
    X, y = np.zeros((4, 2)), np.zeros(4)
    rows = Rows().plus(X, y)
    X[:], y[:] = 1.0, 1.0
    assert not rows.X.any() and not rows.y.any()


def test_weights_are_the_inverse_length_scales():
    kernel = (2.0 * RBF([1.0, 4.0])).bind(2)
    assert_allclose(weigh_inputs(kernel, 2), [1.0, 0.25])
    both = (RBF([1.0, 4.0]) * Matern([2.0, 2.0]) + Constant(1.0)).bind(2)
    assert_allclose(weigh_inputs(both, 2), np.sqrt([1.0 + 0.25, 1.0 / 16.0 + 0.25]))
    assert_array_equal(weigh_inputs(Constant(1.0), 3), np.ones(3))
    assert len(weigh_inputs(Linear().bind(2), 2)) == 2


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_kernels_have_the_same_say_in_what_is_near(unit):
    """However short the length scales of one are."""
    kernels = [RBF([unit, 4.0 * unit]), RBF([4.0, 1.0])]
    assert_allclose(average_weights(kernels, 2), np.sqrt([0.5, 0.5]))


def test_groups_are_near_rows(rng):
    X = rng.standard_normal((60, 2))
    groups = draw_groups(X, 4, 10, np.random.RandomState(0))
    assert [len(np.unique(group)) for group in groups] == [10] * 4
    for group in groups:
        assert_array_equal(np.sort(group), find_by_brute_force(X, X[group[:1]], 10)[0])
    (everything,) = draw_groups(X, 4, 60, np.random.RandomState(0))
    assert_array_equal(everything, np.arange(60))


@pytest.mark.parametrize(("n_inputs", "sizes"), [(1, [100]), (2, [80, 80]), (9, [80] * 8)])
def test_more_inputs_have_more_groups_of_random_rows(n_inputs, sizes, rng):
    """Eighty rows for each input, in groups of so many at most; no row is in two of them."""
    order, size = rng.permutation(1000), max(sizes)
    groups = cut_groups(order, size, n_inputs)
    assert [len(group) for group in groups] == sizes
    assert_array_equal(np.concatenate(groups), order[: sum(sizes)])


def test_few_rows_are_in_as_many_groups(rng):
    order = rng.permutation(10)
    groups = cut_groups(order, 100, 3)
    assert sorted(map(len, groups)) == [3, 3, 4]


@pytest.mark.parametrize("n", [1, 3, 4, 6, 9])
def test_the_first_rows_of_several_chunks(rng, n):
    X = rng.standard_normal((7, 2))
    rows = Rows().plus(X[:4], X[:4, 0]).plus(X[4:6], X[4:6, 0]).plus(X[6:], X[6:, 0])
    assert len(rows.chunks) == 3
    assert_array_equal(rows.head(n), X[:n])
    assert "_joined" not in vars(rows)


@pytest.mark.parametrize("make", [small, small_classifier])
@pytest.mark.every_nth("make", 2)
def test_an_update_does_not_join_all_rows(make):
    """Its time depends on the new rows, and a copy's on all of them."""
    X, y = make_classes(70)
    model = make(n_neighbors=10, max_iter=1).fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    rows = model._state.rows
    assert len(rows.chunks) == 2
    assert "_joined" not in vars(rows)
