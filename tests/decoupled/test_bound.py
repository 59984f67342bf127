"""The bound: gradients, literal twins, limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.decoupled._bound import Evaluation
from tests.decoupled.problems import (
    LIKELIHOODS,
    M_ALPHA,
    PARAMETRIZATIONS,
    make_problem,
)
from tests.derivatives import numerical_gradient

each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
every_point = np.arange(M_ALPHA)


@each
@pytest.mark.parametrize("kind", ["generalized", "plain"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("sample", [every_point, np.array([4, 1, 3])], ids=["all", "some"])
def test_gradient(parametrization, kind, likelihood, sample):
    model, parameters, q, X, y = make_problem(parametrization, kind, likelihood)
    x = parameters.pack()

    def bound(x):
        evaluation = Evaluation(model, parameters.unpack(x), q)
        return evaluation.evaluate(X, y, 1.7, sample)[0]

    _, gradient, _ = Evaluation(model, parameters, q).evaluate(X, y, 1.7, sample)
    expected = numerical_gradient(bound, x)
    if parametrization == "decoupled":  # the upper triangle of L0 is not there
        lower = parameters.unpack(expected)
        lower.L0[:] = np.tril(lower.L0)
    assert_allclose(gradient.pack(), expected, rtol=1e-6, atol=1e-6)
