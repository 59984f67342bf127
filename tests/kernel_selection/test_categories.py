"""Inputs that are categories: what the columns of one share, in every kernel of the grammar."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import kernel_grammar
from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import (
    collapsed_bound,
    log_evidence,
    parameters,
    total_statistics,
)
from skvbgp.kernel_selection._categories import bind
from skvbgp.kernel_selection._scales import DataScales
from skvbgp.kernel_selection._start import draw_starts, find_limits, hyperprior
from skvbgp.kernels import RBF, Constant, Linear, Periodic
from skvbgp.kernels._pairs import Pairs
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import distance, make_data
from tests.kernel_selection.cases import small
from tests.oracles import kernel_selection as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

GRAMMAR = dict(kernel_grammar())
NAMES = ["SE", "RQ", "LIN", "PER", "PER + PER", "LIN * LIN", "RQ * PER", "PER + SE * LIN"]
#: Columns of two numbers, and of an input between them: two categories and what is unknown.
OWNERS = (0, 2, 1, 1, 1)


def pick(*names):
    return [(name, GRAMMAR[name]) for name in names]


def make_model(**parameters):
    return small(**{"categorical_features": [1], "n_inducing": None, **parameters})


def make_rows(n, rng):
    """Encoded rows of these columns."""
    c = rng.integers(2, size=n)
    label = np.sqrt(0.5) * np.eye(3)[c]
    return np.column_stack([rng.standard_normal((n, 2)), label])


def number_free(name):
    """Hyperparameters that are learned of three inputs, one of them a category."""
    counts = {"SE": 1 + 3, "RQ": 1 + 1 + 3, "LIN": 3 + 1, "PER": 1 + 3 + 2, "PER + PER": 12}
    more = {"LIN * LIN": 8, "RQ * PER": 1 + 1 + 3 + 3 + 2, "PER + SE * LIN": 3 + 4 + 6}
    return (counts | more)[name]


def say(leaf, X, mean):
    """Literally: k of the user's rows by what is said of the inputs."""
    numbers = X[:, [0, 2]].astype(float) - mean
    differs = (X[:, 1, None] != X[None, :, 1]).astype(float)
    gaps = numbers[:, None] - numbers[None]
    l2 = np.square(leaf.length_scale)
    if isinstance(leaf, RBF):
        return np.exp(-0.5 * distance(X, X, leaf.length_scale))
    if isinstance(leaf, Linear):
        products = numbers[:, None] * numbers[None] / l2[[0, 2]]
        return leaf.offset**2 + products.sum(axis=2) + 0.5 * (1.0 - differs) / l2[1]
    sines = np.sin(np.pi * gaps / np.array(leaf.period)[[0, 2]]) ** 2 / l2[[0, 2]]
    return np.exp(-2.0 * sines.sum(axis=2) - 4.0 * differs / l2[1])


@pytest.mark.parametrize("name", ["SE", "LIN", "PER"])
@pytest.mark.every_nth("name", 2)
def test_bounds_are_the_evidence_of_the_kernel_of_the_inputs(name, rng):
    X, y = make_data(30, rng)
    y += 0.3 * rng.standard_normal(30)
    model = make_model(kernels=pick(name)).fit(X, y)
    kernel, one = model.best_kernel_[1], model.estimators_[0]
    leaf, factor = (kernel, 1.0) if name == "LIN" else (kernel.kernels[1], kernel.kernels[0].value)
    assert one.kernel == kernel
    K = y.var() * factor * say(leaf, X, X[:, [0, 2]].astype(float).mean(axis=0))
    expected = oracle.log_evidence(K, one.noise_variance, y - y.mean())
    assert_allclose(model.local_lower_bounds_, expected, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_is_there_once(name, rng):
    kernel = bind(GRAMMAR[name], 5, OWNERS)
    X = make_rows(20, rng)
    scales = DataScales.of(X, Targets(rng.standard_normal(20)), OWNERS)
    n = number_free(name)
    assert len(kernel.theta) == n
    assert len(find_limits(kernel, scales)) == len(hyperprior(kernel, scales)[0]) == n + 1
    assert all(len(x) == n + 1 for x in draw_starts(kernel, scales, 2, rng))
    assert_allclose(kernel.pick(kernel.with_theta(kernel.theta).theta), kernel.theta)
    learned, _ = parameters(kernel, rng.standard_normal(n + 1))
    values = dict(zip(learned.hyperparameters, learned.theta, strict=True))
    for name_of, value in values.items():
        stem, _, column = name_of.partition("[")
        if column in ("3]", "4]"):
            assert value == values[f"{stem}[2]"]
        if column == "2]" and stem.endswith("period"):
            assert value == np.log(np.sqrt(2.0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.every_nth("name", 3)
def test_gradients_in_what_columns_share(name, rng):
    kernel, X = bind(GRAMMAR[name], 5, OWNERS), make_rows(15, rng)
    y, x = Targets(rng.standard_normal(15)), 0.3 * rng.standard_normal(number_free(name) + 1)

    def exact(x):
        return log_evidence(kernel, x, Pairs(X), y)

    def sparse(x):
        value, gradient = collapsed_bound(kernel, x[None, :], X[:4], X, y)
        return value, gradient[0]

    for objective in (exact, sparse):
        expected = numerical_gradient(lambda x, f=objective: f(x)[0], x)
        assert_allclose(objective(x)[1], expected, rtol=2e-5, atol=1e-6)


def test_columns_of_a_category_are_as_they_are(rng):
    X, y = make_data(40, rng)
    model = make_model(kernels=pick("SE"), n_inducing=10).fit(X, y)
    frame, scales = model._state.frame, model._state.scales
    assert_array_equal(frame.origin[2:], 0.0)
    assert_array_equal(frame.spread[2:], 1.0)
    assert len(np.unique(scales.spread[2:])) == 1
    assert model.n_features_in_ == 3


@pytest.mark.parametrize(
    "parameters",
    [
        {"hyperparameter_posterior": "gaussian", "max_iter": 3, "n_inducing": 10},
        {"batch_size": 16, "max_iter": 3, "n_inducing": 10},
        {},
    ],
    ids=["gaussian", "mini-batches", "all rows"],
)
@pytest.mark.every_nth("parameters", 2)
def test_kernels_are_those_of_the_inputs(parameters, rng):
    X, y = make_data(40, rng)
    model = make_model(kernels=pick("SE", "PER"), **parameters).fit(X, y)
    for _, kernel in model.kernels_:
        assert len(kernel.kernels[1].length_scale) == 3
    periodic = dict(model.kernels_)["PER"].kernels[1]
    assert_allclose(periodic.period[1], np.sqrt(2.0))
    assert len(model._state.fits[0].x) == 5
    for one in model.estimators_:
        assert len(one.kernel.kernels[1].length_scale) == 3
    assert "1.41" in model.summary() or "length scale (" in model.summary()


def test_what_the_user_says_of_inputs():
    rng = np.random.default_rng(0)
    X, y = make_data(40, rng)
    given = Constant(2.0) * RBF([0.5, 0.3, 1.0], length_scale_bounds="fixed")
    model = make_model(kernels=[given]).fit(X, y)
    assert model.best_kernel_[1].kernels[1].length_scale == (0.5, 0.3, 1.0)
    same = make_model(kernels=[given * Periodic(period_bounds="fixed")]).fit(X, y)
    assert same.best_kernel_[1].kernels[-1].period[1] == 1.0


def test_an_unknown_category_is_as_far_as_any_other(rng):
    X, y = make_data(40, rng)
    model = make_model(kernels=pick("SE")).fit(X[X[:, 1] != "c"], y[X[:, 1] != "c"])
    row = np.array([[0.3, "c", 0.1], [0.3, "new", 0.1]], dtype=object)
    mean, std = model.predict(row, return_std=True)
    assert mean[0] == mean[1]
    assert std[0] > model.predict(np.array([[0.3, "a", 0.1]], dtype=object), True)[1]


def test_a_stream_is_known_by_its_sums(rng, monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_data(60, rng)
    model = make_model(kernels=pick("SE", "LIN"), max_iter=2, n_inducing=10).fit(X[:36], y[:36])
    model.partial_fit(X[36:50], y[36:50]).partial_fit(X[50:], y[50:])
    for one, bound in zip(model.estimators_, model.local_lower_bounds_, strict=True):
        Z = one.inducing_inputs - one._frame.origin
        encoded = model._read(X, reset=False)
        sums = total_statistics(encoded, Targets(y), one._frame, Z, one._kernel, one._points)
        jacobian = one._frame.target.log_jacobian(Targets(y))
        assert_allclose(bound, sums.bound(sums.optimal_q()) + jacobian, rtol=1e-8)
    assert model.feature_importances_.shape == (3,)
