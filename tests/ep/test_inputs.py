"""Missing entries as Gaussian inputs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._refinement import Refinement
from tests.derivatives import numerical_gradient
from tests.incomplete import draw_incomplete
from tests.oracles import ep as oracles


@pytest.fixture
def incomplete(rng):
    return draw_incomplete(rng)


def test_units_do_not_matter(incomplete):
    unit, offset = np.array([1e-3, 1.0, 1e5]), np.array([0.0, 7.0, 1e6])
    X = incomplete * unit + offset
    a = InputModel.of(incomplete).condition(Inputs(incomplete, np.zeros_like(X)))
    b = InputModel.of(X).condition(Inputs(X, np.zeros_like(X)))
    assert_allclose(b.mean, a.mean * unit + offset, rtol=1e-9)
    assert_allclose(b.variance, a.variance * unit**2, rtol=1e-9)


def test_given_variances_stay_and_those_of_missing_entries_are_replaced(incomplete, rng):
    given = rng.uniform(0.1, 1.0, incomplete.shape)
    seen = ~np.isnan(incomplete)
    conditional = InputModel.of(incomplete).condition(Inputs(incomplete, given))
    completed = refinement(np.full(3, 0.5), np.full(3, 0.2)).refine(conditional, ~seen)
    assert_array_equal(completed.mean[seen], incomplete[seen])
    assert_array_equal(completed.variance[seen], given[seen])
    assert np.all(completed.variance[~seen] != given[~seen])
    assert np.isfinite(completed.mean).all()


def refinement(shift, log_spread, learned=True):
    return Refinement(shift, log_spread, np.full(shift.shape, learned))


@pytest.mark.parametrize("per", ["column", "entry"])
def test_refinement_shifts_and_spreads_what_is_missing(incomplete, rng, per):
    missing = np.isnan(incomplete)
    before = InputModel.of(incomplete).condition(Inputs(incomplete, np.zeros_like(incomplete)))
    shift, log_spread = rng.standard_normal((2, *(missing.shape if per == "entry" else (3,))))
    refined = refinement(shift, log_spread)
    after = refined.refine(before, missing)
    assert_allclose(after.mean, before.mean + shift * np.sqrt(before.variance))
    assert_allclose(after.variance, before.variance * np.exp(log_spread))
    new = refined.refine_new(before, missing)
    assert_array_equal(new.mean, before.mean if per == "entry" else after.mean)
    more = refined.extended(2)
    rows = Inputs(np.append(before.mean, before.mean[:2], axis=0), np.ones((len(missing) + 2, 3)))
    is_missing = np.ones(rows.mean.shape, dtype=bool)
    last = more.refine(rows, is_missing).mean[-2:]
    assert_array_equal(last, before.mean[:2] + (0.0 if per == "entry" else shift))


@pytest.mark.parametrize("per", ["column", "entry"])
def test_kl(rng, per):
    """Of N(m + b sqrt(v), c v) to N(m, v), summed over missing entries."""
    missing = rng.random((4, 3)) < 0.5
    shape = missing.shape if per == "entry" else (3,)
    b, log_c = rng.standard_normal((2, *shape))
    c = np.exp(log_c)
    each = np.empty(shape)
    for k in np.ndindex(shape):
        each[k] = oracles.expectation(
            lambda e, k=k: (
                -0.5 * np.log(c[k])
                - 0.5 * e[:, 0] ** 2
                + 0.5 * (b[k] + np.sqrt(c[k]) * e[:, 0]) ** 2
            ),
            [0.0],
            np.ones(1),
        )
    assert_allclose(refinement(b, log_c).kl(missing), np.sum(missing * each))
    assert refinement(np.zeros(shape), np.zeros(shape)).kl(missing) == 0.0


@pytest.mark.parametrize("per", ["column", "entry"])
def test_gradient_of_the_refinement(rng, per):
    """Of a function of the refined moments, less the KL; x is what is learned alone."""
    missing = rng.random((4, 3)) < 0.5
    conditional = Inputs(*rng.uniform(0.2, 1.0, (2, 4, 3)))
    d_mean, d_variance = rng.standard_normal((2, 4, 3))
    start = Refinement.start(per, missing)
    start = start.with_x(rng.standard_normal(len(start.x)))
    assert len(start.x) == len(start.bounds) == 2 * (missing.sum() if per == "entry" else 3)

    def value(x):
        moved = start.with_x(x)
        refined = moved.refine(conditional, missing)
        linear = np.sum(d_mean * refined.mean) + np.sum(d_variance * refined.variance)
        return linear - moved.kl(missing)

    gradient = start.gradient(conditional, missing, d_mean, d_variance)
    assert_allclose(gradient, numerical_gradient(value, start.x), atol=1e-8)
    assert_array_equal(start.with_x(start.x).shift, start.shift)


def test_what_a_refinement_starts_with(rng):
    missing = rng.random((4, 3)) < 0.5
    before = refinement(np.full(3, 0.3), np.full(3, -0.1))
    assert_array_equal(Refinement.start("column", missing, before).shift, before.shift)
    for per, last in [("column", Refinement.start("entry", missing)), ("entry", before)]:
        assert np.all(Refinement.start(per, missing, last).shift == 0.0)
    none = Refinement.start(None, missing, before)
    assert np.all(none.shift == 0.0) and len(none.x) == 0
    assert len(Refinement.start("column", np.zeros((4, 3), dtype=bool)).x) == 0
