"""Inputs that are categories: an overlap kernel with one uncertain length scale each."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp._core.expectations import SecondMoment, first_moment
from skvbgp.base import Targets
from skvbgp.base._categories import Categories
from skvbgp.kernels import RBF
from skvbgp.sgpr._noise import HyperPrior
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._psi import rotate
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws
from skvbgp.sgpr._start import settle_variances
from skvbgp.sgpr._training import collapse_bound
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import distance, make_data

SCALES = [1.0, 0.8, 3.0]
REGRESSORS = [VBDTCRegressor, VBFITCRegressor, VBPITCRegressor, VBPICRegressor]


def make_model(cls=VBDTCRegressor, **parameters):
    settings = {"categorical_features": [1], "length_scale": SCALES, "random_state": 0}
    return cls(**(settings | parameters))


def test_predictions_are_those_of_the_overlap_kernel(rng):
    X, y = make_data(40, rng)
    T = make_data(6, rng)[0]
    T[0, 1] = "unknown"
    fixed = {"learn_hyperparameters": False, "hyperparameter_variance": 1e-12, "signal_std": 1.5}
    model = make_model(n_inducing=40, normalize_y=False, noise_variance=0.1, **fixed).fit(X, y)
    mean, std = model.predict(T, True)

    def k(A, B):
        return 1.5**2 * np.exp(-0.5 * distance(A, B, SCALES))

    K = k(X, X) + 0.1 * np.eye(40)
    variance = 1.5**2 + 0.1 - np.sum(k(T, X).T * np.linalg.solve(K, k(T, X).T), axis=0)
    assert_allclose(mean, k(T, X) @ np.linalg.solve(K, y), atol=1e-5)
    assert_allclose(std, np.sqrt(variance), rtol=1e-4)
    assert_allclose(1.0 / model.inverse_length_scale_mean_, SCALES)


def test_one_uncertain_scale_has_the_closed_form_of_many(rng):
    """As a row has one column that is not zero, those of the others say nothing of it."""
    X = Categories.of(rng.choice(list("abc"), (5, 1)), [0]).encode(rng.choice(list("abcd"), (5, 1)))
    Z, nu, xi = rng.standard_normal((4, 4)), 1.3, 0.2
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    points, weight = nu + np.sqrt(xi) * x, weight / weight.sum()
    K = [np.exp(-0.5 * np.sum((lam * X[:, None] - Z) ** 2, axis=2)) for lam in points]
    moments = (*rotate(X, np.full(4, nu), np.full(4, xi)), Z)
    assert_allclose(first_moment(*moments), np.tensordot(weight, K, 1), rtol=1e-10)
    expected = sum(w * k.T @ k for w, k in zip(weight, K, strict=True))
    assert_allclose(SecondMoment(*moments, n_kept=0).weighted_sum(np.ones(5)), expected, rtol=1e-10)


@pytest.mark.parametrize("cls", REGRESSORS[:3])
@pytest.mark.parametrize("solver", ["exact", "collapsed"])
@pytest.mark.every_nth("cls", 2)
def test_gradient_of_what_columns_share(rng, cls, solver):
    X, y = make_data(14, rng)
    options = {"max_iter": 2, "n_inducing": 14 if solver == "exact" else 5, "psi": "sampled"}
    if cls is not VBDTCRegressor:
        options["noise_kernel"] = 0.5 * RBF(SCALES)
    model = make_model(cls, solver=solver, **options).fit(X, y)
    state, p = model._state, model._state.parameters
    assert p.nu[2] == p.nu[5] and p.owners == (0, 2, 1, 1, 1, 1)
    if solver == "exact":

        def bound(p):
            mixture = state.memory.at(p)
            return mixture.lower_bound, mixture.gradient()
    else:
        data = state.gather(model._read(X, reset=False), Targets(y))
        data = model._learner()._divide(data, Targets(y), p.nu)[0]
        rules = [CommonDraws(rng.standard_normal((3, 6)))]
        rules += [ClosedForm()] if cls is VBDTCRegressor else []
        bound = collapse_bound(state.model, data, rules[-1])
    x, start = p.pack(), len(p.nu) * 2 + 3
    theta = np.array(state.model.structure.owners_of_theta, dtype=int)
    groups = [np.flatnonzero(np.array(p.owners) == j) for j in range(3)]
    groups += [group + len(p.nu) for group in groups]
    groups += [start + np.flatnonzero(theta == k) for k in np.unique(theta)]

    def evaluate(steps):
        moved = x.copy()
        for group, step in zip(groups, steps, strict=True):
            moved[group] += step
        return bound(p.unpack(moved))[0]

    gradient = p.pack_gradient(bound(p)[1])
    for group in groups:
        assert_allclose(gradient[group], gradient[group[0]], rtol=1e-10)
    total = [gradient[group].sum() for group in groups]
    expected = numerical_gradient(evaluate, np.zeros(len(groups)))
    assert_allclose(total, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("solver", ["exact", "collapsed", "stochastic"])
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("cls", 3)
def test_columns_of_a_category_stay_equal(rng, cls, solver):
    X, y = make_data(60, rng)
    model = make_model(cls, solver=solver, max_iter=4, n_inducing=60 if solver == "exact" else 8)
    model.fit(X, y)
    p, structure = model._state.parameters, model._state.model.structure
    for values in (p.nu, p.xi):
        assert len(np.unique(values[2:])) == 1 and len(np.unique(values)) == 3
    if cls is not VBDTCRegressor:
        theta = np.array(p.noise_theta)
        numbers = np.array(structure.owners_of_theta)
        assert all(np.ptp(theta[numbers == k]) < 1e-12 for k in numbers)
        assert len(model.noise_kernel_.theta) == len(set(numbers))
    assert model.inverse_length_scale_mean_.shape == (3,)
    assert model.inducing_inputs_.shape[1] == 6


def test_the_prior_of_a_scale_counts_once(rng):
    """However many categories share it."""
    X, y = make_data(30, rng)
    state = make_model(max_iter=1).fit(X, y)._state
    kl, d_mean, _ = state.model.kl_theta(state.parameters)
    plain = VBDTCRegressor(max_iter=1).fit(X[:, ::2], y)._state
    p, q = state.parameters, plain.parameters
    few = type(q)(p.nu[:3], p.xi[:3], p.alpha, p.beta, 1.0, np.empty(0), q.U)
    prior = state.model.hyperprior
    own = [0, 1, 2, -1]
    hyperprior = type(prior)(prior.mean[own], prior.variance[own])
    expected, one, _ = type(state.model)(None, hyperprior, None).kl_theta(few)
    assert_allclose(kl, expected, rtol=1e-12)
    assert_allclose(d_mean[2:6].sum(), one[2], rtol=1e-12)


def test_inducing_inputs_and_kernels_are_those_of_the_inputs(rng):
    X, y = make_data(40, rng)
    kernel = RBF([1.0, 0.5, 2.0])
    fixed = {"learn_hyperparameters": False, "inducing_inputs": X[:6].tolist()}
    model = make_model(VBFITCRegressor, noise_kernel=kernel, **fixed).fit(X, y)
    assert_allclose(model.inducing_inputs_, model._categories.encode(X[:6]), atol=1e-12)
    assert_allclose(model.noise_kernel_.kernels[-1].length_scale, kernel.length_scale)


def test_pairs_of_rows_have_no_closed_form(rng):
    X, y = make_data(40, rng)
    for cls in (VBPITCRegressor, VBPICRegressor):
        with pytest.raises(ValueError, match="no expectations of pairs of rows"):
            make_model(cls, psi="closed_form").fit(X, y)
    model = make_model(VBPITCRegressor, n_inducing=4, solver="collapsed", max_iter=1).fit(X, y)
    assert isinstance(model._state.draw_rule, CommonDraws)
    assert_array_equal(model.predict(X).shape, 40)


def test_the_variance_of_what_columns_share_is_settled_by_the_sum_of_their_slopes():
    p = Parameters(
        np.ones(3), np.full(3, 0.2), 1.0, 0.3, 0.1, np.empty(0), np.zeros((1, 3)), (0, 1, 1)
    )
    tau = np.array([2.0, 3.0, 3.0, 4.0])
    model = SimpleNamespace(hyperprior=HyperPrior(np.zeros(4), tau))
    after = settle_variances(model, p, np.array([-1.0, -2.0, -5.0, -3.0]))
    assert_allclose(1.0 / after.xi, [1.0 / 2.0 + 2.0, 1.0 / 3.0 + 14.0, 1.0 / 3.0 + 14.0])
    assert after.beta == pytest.approx(1.0 / (1.0 / 4.0 + 6.0))
