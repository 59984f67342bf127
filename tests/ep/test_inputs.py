"""Missing entries as Gaussian inputs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.ep._inputs import InputModel, Inputs
from tests.derivatives import numerical_gradient
from tests.incomplete import draw_incomplete
from tests.oracles import ep as oracles


@pytest.fixture
def incomplete(rng):
    return draw_incomplete(rng)


def test_units_do_not_matter(incomplete):
    unit, offset = np.array([1e-3, 1.0, 1e5]), np.array([0.0, 7.0, 1e6])
    X = incomplete * unit + offset
    a = InputModel.of(incomplete).complete(Inputs(incomplete, np.zeros_like(X)))
    b = InputModel.of(X).complete(Inputs(X, np.zeros_like(X)))
    assert_allclose(b.mean, a.mean * unit + offset, rtol=1e-9)
    assert_allclose(b.variance, a.variance * unit**2, rtol=1e-9)


def test_given_variances_stay_and_those_of_missing_entries_are_replaced(incomplete, rng):
    given = rng.uniform(0.1, 1.0, incomplete.shape)
    model = InputModel.of(incomplete).with_refinement(np.full(3, 0.5), np.full(3, 0.2))
    completed = model.complete(Inputs(incomplete, given))
    seen = ~np.isnan(incomplete)
    assert_array_equal(completed.mean[seen], incomplete[seen])
    assert_array_equal(completed.variance[seen], given[seen])
    assert np.all(completed.variance[~seen] != given[~seen])
    assert np.isfinite(completed.mean).all()


def test_refinement_shifts_and_spreads_what_is_missing(incomplete):
    model = InputModel.of(incomplete)
    inputs = Inputs(incomplete, np.zeros_like(incomplete))
    before = model.complete(inputs)
    shift, log_spread = np.array([0.5, -1.0, 0.0]), np.array([0.3, 0.0, -0.7])
    after = model.with_refinement(shift, log_spread).complete(inputs)
    assert_allclose(after.mean, before.mean + shift * np.sqrt(before.variance))
    assert_allclose(after.variance, before.variance * np.exp(log_spread))


def test_kl(rng):
    """Of N(m + b sqrt(v), c v) to N(m, v), summed over the entries of each column."""
    model = InputModel.of(rng.standard_normal((9, 3)))
    counts = np.array([2.0, 0.0, 5.0])
    x = rng.standard_normal(6)

    def kl(x):
        return model.with_refinement(x[:3], x[3:]).kl(counts)

    value, d_shift, d_log_spread = kl(x)
    b, c = x[:3], np.exp(x[3:])
    expected = [
        oracles.expectation(
            lambda e, k=k: (
                -0.5 * np.log(c[k])
                - 0.5 * e[:, 0] ** 2
                + 0.5 * (b[k] + np.sqrt(c[k]) * e[:, 0]) ** 2
            ),
            [0.0],
            np.ones(1),
        )
        for k in range(3)
    ]
    assert_allclose(value, counts @ expected)
    gradient = numerical_gradient(lambda x: kl(x)[0], x)
    assert_allclose(np.append(d_shift, d_log_spread), gradient, atol=1e-9)
    assert model.kl(counts)[0] == 0.0
