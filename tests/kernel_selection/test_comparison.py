"""Bounds of many hyperparameters, against those that climbs have."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.base import Targets
from skvbgp.kernel_selection import _bound, kernel_grammar
from skvbgp.kernel_selection._bound import Comparison, collapsed_bound, log_evidence
from skvbgp.kernel_selection._categories import bind
from skvbgp.kernels._pairs import Pairs

KERNELS = dict(kernel_grammar(depth=2))


def make_points(kernel, rng):
    return rng.normal(size=(5, len(kernel.theta) + 1)) * 0.3 + np.append(kernel.theta, -2.0)


@pytest.mark.parametrize("name", ["SE", "RQ + PER", "LIN * PER"])
@pytest.mark.parametrize("some", [2**16, 1])
@pytest.mark.every_nth("name", 2)
def test_bounds_at_once_are_those_one_by_one(name, some, rng, monkeypatch):
    X, Z = rng.normal(size=(9, 2)), rng.normal(size=(4, 2))
    y, kernel = (
        Targets(rng.normal(size=9), weight=rng.uniform(0.5, 2.0, 9)),
        bind(KERNELS[name], 2, ()),
    )
    points = make_points(kernel, rng)
    monkeypatch.setattr(_bound, "_MOST_ENTRIES", some)
    exact = [log_evidence(kernel, x, Pairs(X), y)[0] for x in points]
    assert_allclose(Comparison(X, y).bounds(kernel, points), exact, rtol=1e-10)
    sparse = [collapsed_bound(kernel, x[None], Z, X, y)[0] for x in points]
    assert_allclose(Comparison(X, y, Z).bounds(kernel, points), sparse, rtol=1e-10)


@pytest.mark.parametrize("sparse", [True, False])
def test_hyperparameters_beyond_all_range_have_no_bound(sparse, rng):
    X, kernel = rng.normal(size=(9, 2)), bind(KERNELS["SE"], 2, ())
    points = make_points(kernel, rng)
    points[1] = 1e3
    bounds = Comparison(X, Targets(X[:, 0]), X[:3] if sparse else None).bounds(kernel, points)
    assert np.flatnonzero(np.isneginf(bounds)) == [1]
    assert np.isneginf(Comparison(X, Targets(X[:, 0])).bounds(kernel, points[1:2])).all()


def test_noise_that_drowns_in_rounding_has_no_bound(rng):
    X, kernel = np.zeros((9, 2)), bind(KERNELS["SE"], 2, ())
    x = np.append(kernel.theta + 20.0, -40.0)
    assert np.isneginf(Comparison(X, Targets(rng.normal(size=9))).bounds(kernel, [x])).all()
