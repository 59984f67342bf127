"""Places that share what their neighbours have in common."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.spectrum import _groups
from skvbgp.spectrum._groups import Group, group_places
from skvbgp.spectrum._local import Neighbours
from skvbgp.spectrum._rows import Rows
from tests.spectrum.cases import HYPER, D, M

#: Neighbours of three places each: some, none and all in common.
NEAR = {
    "some": [[0, 2, 3, 8], [2, 3, 5, 8], [1, 2, 4, 8]],
    "none": [[0, 1, 2, 3], [4, 5, 6, 7], [3, 8, 9, 10]],
    "all": [[1, 4, 6, 7]] * 3,
}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("near", NEAR.values(), ids=NEAR)
def test_weights_are_those_of_each_place_s_own_system(rng, near, p):
    """Of two draws of the features, for several lines of each place."""
    near = np.array(near)
    known, Phi = rng.standard_normal((2, 11, 6)), rng.standard_normal((2, 3, p, 6))
    W = Group.of(np.arange(3), near).weigh(known, Phi, 0.3)
    assert W.shape == (2, 3, p, 4)
    for s in range(2):
        for i, index in enumerate(near):
            own = known[s, index]
            expected = np.linalg.solve(own @ own.T + 0.3 * np.eye(4), own @ Phi[s, i].T).T
            assert_allclose(W[s, i], expected, rtol=1e-9, atol=1e-12)


def nearest(places, X, k):
    distance = np.sum((places[:, None] - X) ** 2, axis=2)
    return np.sort(np.argsort(distance, axis=1)[:, :k], axis=1)


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_each_place_is_in_one_group_of_near_ones(rng, n, monkeypatch):
    monkeypatch.setattr(_groups, "_ALONE", np.inf)
    X, places = rng.uniform(size=(60, D)), rng.uniform(size=(n, D))
    near = nearest(places, X, 5)
    groups = group_places(X, near, 40)
    assert_array_equal(np.sort(np.concatenate([group.places for group in groups])), np.arange(n))
    for group in groups:
        own = near[group.places]
        assert_array_equal(own[group.is_shared].reshape(len(own), -1), [group.shared] * len(own))
        rest = own[~group.is_shared].reshape(len(own), -1)
        assert_array_equal(group.others[group.own], rest)


def test_groups_are_larger_the_nearer_their_places_are(rng, monkeypatch):
    monkeypatch.setattr(_groups, "_ALONE", np.inf)
    X = rng.uniform(size=(400, D))
    sizes = [
        len(group_places(X, nearest(width * rng.uniform(size=(64, D)), X, 10), 40))
        for width in (0.01, 0.3, 1.0)
    ]
    assert sizes[0] == 1 and sizes == sorted(sizes) and sizes[2] > sizes[1]


def test_pieces_are_cut_at_medians_of_the_widest_input(rng):
    X = rng.permutation(8)[:, None] * [10.0, 1.0] + [[0.0, 0.0]]
    assert_array_equal(np.argsort(X[:, 0]), _groups._halve(X, 3))
    pieces = np.split(_groups._halve(X, 1), 2)
    assert [set(X[piece, 0]) for piece in pieces] == [{0, 10, 20, 30}, {40, 50, 60, 70}]


def test_places_are_alone_where_they_have_little_in_common(rng):
    X = rng.uniform(size=(400, 8))
    assert group_places(X, nearest(rng.uniform(size=(16, 8)), X, 6), 200) is None
    assert group_places(X, nearest(X[:9], X, 3), 2) is None  # systems of features are others


def test_draws_are_taken_some_at_a_time(rng, monkeypatch):
    """As many as they may be, one after the other, with the same answers."""
    X, places = rng.uniform(size=(30, D)), rng.uniform(size=(9, D))
    local = Neighbours.of(Rows(X, X[:, 0]), nearest(places, X, 4))
    draws = [rng.standard_normal((M, D)) for _ in range(5)]
    monkeypatch.setattr(_groups, "_ALONE", np.inf)

    def lines(R):
        return np.cos(places @ np.tile(R, (2, 1)).T)

    def answers(least):
        monkeypatch.setattr("skvbgp.spectrum._local._LEAST_DRAWS", least)
        monkeypatch.setattr("skvbgp.spectrum._local._DRAWS_SIZE", 1)
        return list(local.condition(lines, draws, HYPER, full=False))

    for one, other in zip(answers(1), answers(3), strict=True):
        for first, second in zip(one, other, strict=True):
            assert_allclose(first, second, rtol=1e-10)
