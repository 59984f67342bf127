"""The flat vector of the optimisers and the fields of the model are two views of the same."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.sgpr._parameters import LEARNED, Parameters
from tests.derivatives import numerical_gradient
from tests.sgpr.problems import KINDS, small_problem

POSITIVE = {"nu", "xi", "alpha", "beta", "noise_variance"}


@pytest.fixture(params=KINDS)
def parameters(request):
    return small_problem(request.param).parameters


def test_pack_and_unpack(parameters):
    x = parameters.pack()
    assert x.shape == (sum(np.size(getattr(parameters, name)) for name in LEARNED),)
    back = parameters.unpack(x)
    for name in LEARNED:
        before, after = getattr(parameters, name), getattr(back, name)
        assert type(after) is type(before)
        assert_allclose(after, before, rtol=1e-15)
    assert_allclose(back.pack(), x, rtol=1e-15)


def test_any_vector_gives_valid_parameters(parameters, rng):
    x = 10.0 * rng.normal(size=len(parameters.pack()))
    p = parameters.unpack(x)
    for name in POSITIVE:
        assert np.all(np.asarray(getattr(p, name)) > 0.0)
    parts = parameters.split(x)
    for name in set(LEARNED) - POSITIVE:
        assert_array_equal(getattr(p, name), parts[name])


def test_split_covers_the_vector_once(parameters):
    n = len(parameters.pack())
    parts = parameters.split(np.arange(n))
    assert set(parts) == set(LEARNED)
    assert_array_equal(np.concatenate([part.ravel() for part in parts.values()]), np.arange(n))
    for name, part in parts.items():
        assert part.shape == np.shape(getattr(parameters, name))


def test_pack_gradient(parameters, rng):
    """Chain rule for a function that is linear in the fields."""
    weights = Parameters(
        **{name: rng.normal(size=np.shape(getattr(parameters, name))) for name in LEARNED}
    )

    def function(x):
        p = parameters.unpack(x)
        return sum(np.sum(getattr(weights, name) * getattr(p, name)) for name in LEARNED)

    expected = numerical_gradient(function, parameters.pack())
    assert_allclose(parameters.pack_gradient(weights), expected, rtol=1e-9, atol=1e-9)


def test_second_moment(parameters):
    assert_allclose(parameters.second_moment, 0.9**2 + 0.15, rtol=1e-15)
    other = replace(parameters, alpha=-2.0, beta=0.5)
    assert other.second_moment == 4.5


@pytest.mark.parametrize("kind", KINDS)
def test_limits_hold_every_field_that_is_a_logarithm(kind):
    """The start is inside; the noise kernel's bounds are its own."""
    problem = small_problem(kind)
    p = problem.parameters
    bounds = problem.model.bounds(p)
    x = p.pack()
    assert bounds.shape == (len(x), 2)
    assert np.all((bounds[:, 0] < x) & (x < bounds[:, 1]))
    lower, upper = (p.split(side) for side in bounds.T)
    for name in POSITIVE:
        assert np.isfinite(lower[name]).all()
        assert np.isfinite(upper[name]).all()
    assert not np.isfinite(lower["U"]).any()
    if kind != "dtc":
        assert_array_equal(
            np.column_stack([lower["noise_theta"], upper["noise_theta"]]),
            problem.model.structure.bounds,
        )
