"""Starting values from the data."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp.base import Targets
from skvbgp.sgpr import _learner, _start
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._start import (
    _block_evidence,
    fit_noise_to_blocks,
    shorten,
    start_from_blocks,
)
from skvbgp.sgpr._training import Reached
from tests.derivatives import numerical_gradient
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import small
from tests.sgpr.problems import NOISE_SCALE, small_problem
from tests.signals import chirp


def block_evidence(problem, x, rows):
    """log N(y | 0, k^eps(X, X) + sigma_n^2 I) of one block, the kernel written out."""
    value, *lengths = np.exp(x[:-1])
    X = problem.model.coordinates.original(rows.X) / lengths
    C = NOISE_SCALE * value * oracles.se(X, X) + np.exp(x[-1]) * np.eye(len(X))
    return stats.multivariate_normal(np.zeros(len(X)), C).logpdf(rows.y)


def start_of(problem):
    p = problem.parameters
    return np.append(p.noise_theta, np.log(p.noise_variance))


def test_the_blocks_evidence_and_its_gradient():
    """Values of order 10: the stencil's error is below 1e-9."""
    problem = small_problem("pitc")
    x, rows = start_of(problem), problem.batch[0]
    expected = numerical_gradient(lambda x: block_evidence(problem, x, rows), x)
    for group in (rows, rows.with_pairs(problem.model.coordinates)):
        value, actual = _block_evidence(problem.model, x, group)
        assert_allclose(value, block_evidence(problem, x, rows), rtol=1e-10)
        assert_allclose(actual, expected, rtol=1e-8, atol=1e-8)


def test_fit_noise_to_blocks():
    """Explains the blocks better, and touches nothing but the noise."""
    problem = small_problem("pitc")
    p = problem.parameters
    after = fit_noise_to_blocks(problem.model, p, problem.data, np.random.RandomState(0))
    before_value, after_value = (
        sum(block_evidence(problem, start_of(q), rows) for rows in problem.batch)
        for q in (problem, problem.at(after))
    )
    assert after_value > before_value + 0.5
    parts, moved = p.split(p.pack()), p.split(after.pack())
    for name in parts:
        same = np.array_equal(parts[name], moved[name])
        assert same == (name not in {"noise_theta", "noise_variance"})
    again = fit_noise_to_blocks(problem.model, p, problem.data, np.random.RandomState(0))
    assert_array_equal(again.pack(), after.pack())


@pytest.mark.slow
def test_length_scales_are_shortened_where_the_function_is_rough():
    options = dict(solver="stochastic", batch_size=256, max_iter=60, random_state=0)
    X, y = chirp(1_500)
    start = 0.5 * X.std()  # that of smooth functions
    assert VBDTCRegressor(100, **options).fit(X, y).score(X, y) > 0.6
    assert VBDTCRegressor(100, length_scale=start, **options).fit(X, y).score(X, y) < 0.4


def test_what_blocks_cannot_tell_stays_near_its_start():
    """Groups are as far from each other with any length scale below their distance."""
    X, y = lines_of_groups()
    model, p, data = problem_of_blocks(y, X)
    after = fit_noise_to_blocks(model, p, data, np.random.RandomState(0))
    distance = np.diff(np.unique(X[:, 0])).min()
    assert distance / 10.0 < np.exp(after.noise_theta[1]) < distance


def test_length_scales_stay_where_the_function_is_smooth():
    problem = small_problem("dtc")
    p = replace(problem.parameters, nu=np.ones_like(problem.parameters.nu))
    after = shorten(problem.model, p, problem.data, seed=0)
    assert_array_equal(after.pack(), p.pack())


def test_what_tells_outputs_apart_is_not_stretched():
    """A rough function of the inputs is no reason to think that outputs have nothing in common."""
    problem = small_problem("dtc")
    p = replace(problem.parameters, nu=np.full_like(problem.parameters.nu, 0.02))
    factor = shorten(problem.model, p, problem.data, seed=0).nu / p.nu
    assert np.all(factor == factor[0]) and factor[0] > 1.0
    joint = replace(p, noise_variance=np.array([p.noise_variance]))  # of the last column
    after = shorten(problem.model, joint, problem.data, seed=0)
    factor = after.nu / p.nu
    assert factor[-1] == 1.0 and np.all(factor[:-1] == factor[0]) and factor[0] > 1.0
    assert_allclose(after.xi, factor**2 * p.xi)


@pytest.mark.parametrize("spread", [pytest.param(1e-3, marks=pytest.mark.thorough), 1e3])
def test_units_do_not_matter_where_given_inducing_inputs_do_not_vary(spread):
    """The rows then say what the unit is, if hyperparameters are learned."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X.sum(axis=1) + 0.1 * rng.normal(size=60)
    U = np.column_stack([np.linspace(-2.0, 2.0, 8), np.zeros(8)])

    def fit(unit, U):
        units = [1.0, unit]
        return small(VBDTCRegressor, inducing_inputs=U * units, max_iter=20).fit(X * units, y)

    assert fit(spread, U).score(X * [1.0, spread], y) > 0.95
    for given in (U, U[:1]):
        actual, expected = (fit(s, given).inverse_length_scale_mean_ for s in (spread, 1.0))
        assert_allclose(actual * [1.0, spread], expected, rtol=1e-3)


# --- many inputs -----------------------------------------------------------------------------


def start_of_inputs(d, n=30, **options):
    """Prior variances, and starting means, of d inverse length scales and the signal."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(n, d)), Targets(rng.normal(size=n))
    state = VBDTCRegressor(**options)._learner().start(X, y, rng, None)
    p = state.parameters
    return state.model.hyperprior.variance, np.append(p.nu, p.alpha)


def test_of_many_inputs_rows_are_a_priori_as_far_apart_as_one_length_scale():
    """E[sum_k lambda_k^2 (x_k - x'_k)^2] = 2 for rows of unit spread, by the prior."""
    for d in (21, 300):
        variance, start = start_of_inputs(d)
        assert_allclose(2.0 * np.sum(variance[:-1]), 2.0)
        assert variance[-1] == 4.0
        assert_allclose(start[:-1] ** 2, variance[:-1])
        variance, start = start_of_inputs(d, prior_variance=3.0)
        assert_array_equal(variance, 3.0)
        assert_allclose(start[:-1], 2.0 / np.sqrt(d))
    for d, n in ((20, 30), (21, 501)):  # few inputs, or rows enough
        variance, start = start_of_inputs(d, n, n_inducing=5)
        assert_array_equal(variance, 4.0)
        assert_allclose(start[:-1], 2.0 / np.sqrt(d))


def test_categories_count_as_one_input_each():
    """Not as their columns: 3 numbers and 5 inputs of six categories are few."""
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.normal(size=(60, 3)), rng.randint(6, size=(60, 5))])
    y = rng.normal(size=60)
    model = VBDTCRegressor(categorical_features=range(3, 8), max_iter=1, random_state=0).fit(X, y)
    assert_array_equal(model._state.model.hyperprior.variance, 4.0)
    assert len(model._state.parameters.nu) > 21


def factor_rows(n, d, rng):
    """Sixty inputs of which all say something, and none much."""
    z = rng.normal(size=(n, 8))
    X = z @ rng.normal(size=(8, d)) + 0.5 * rng.normal(size=(n, d))
    f = z @ rng.normal(size=8)
    return X, f / f.std() + 0.5 * rng.normal(size=n)


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
def test_many_inputs_are_not_noise_to_few_rows(cls):
    """With the prior of few inputs, the bound is highest where the function is constant."""
    X, y = factor_rows(600, 60, np.random.default_rng(0))
    X, y, X_new, y_new = X[:100], y[:100], X[100:], y[100:]
    model = cls(random_state=0).fit(X, y)
    wide = cls(prior_variance=4.0, random_state=0).fit(X, y)
    assert wide.score(X_new, y_new) < 0.05
    assert model.score(X_new, y_new) > 0.5
    assert model.lower_bound_ > wide.lower_bound_ + 20.0


# --- where the blocks tell more than a function that starts anywhere -------------------------


def lines_of_groups(n=440, n_inputs=15):
    """A line for each of six groups, and nearly collinear inputs that say nothing."""
    rng = np.random.default_rng(0)
    group, t = rng.integers(6, size=n), rng.uniform(size=n)
    factors = rng.normal(size=(n, 4)) @ rng.normal(size=(4, n_inputs - 2))
    X = np.column_stack([group, t, factors + 0.01 * rng.normal(size=factors.shape)])
    y = rng.normal(size=6)[group] + rng.normal(size=6)[group] * t + 0.002 * rng.normal(size=n)
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


@pytest.mark.thorough
def test_vbpic_finds_what_its_blocks_tell_with_both_solvers():
    """And is above VBDTC, which it contains."""
    X, y = lines_of_groups()
    train, test = slice(360), slice(360, None)
    options = dict(n_inducing=30, max_iter=8, random_state=0)
    white = VBDTCRegressor(solver="collapsed", **options).fit(X[train], y[train])
    for solver in ("collapsed", "stochastic"):
        options |= {"n_blocks": 3, "batch_size": 240, "noise_kernel": None}
        model = VBPICRegressor(solver=solver, **options)
        model.fit(X[train], y[train])
        assert model.lower_bound_ > white.lower_bound_ + 250.0, solver
        assert np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)) < 0.004, solver


def linear_rows(n=300, d=20):
    """Four inputs matter, and the blocks tell next to nothing: q(theta) stays wide."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, X[:, :4] @ [1.0, 0.5, -0.7, 0.3] + 0.3 * rng.normal(size=n)


@pytest.mark.thorough
def test_correlated_noise_does_not_end_below_white_noise():
    """VBPITC contains VBDTC; by its own training alone it ends 7 below. A nat is its draws'."""
    X, y = linear_rows()
    options = dict(n_inducing=60, random_state=0)
    white = VBDTCRegressor(**options).fit(X, y)
    model = VBPITCRegressor(**options).fit(X, y)
    assert model.lower_bound_ > white.lower_bound_ - 1.0
    assert len(model.lower_bounds_) == model.n_iter_


def test_a_callback_that_stops_training_stops_all_of_it(monkeypatch):
    X, y = linear_rows(n=150, d=4)

    def refuse(*args):
        raise AssertionError("trained further")

    monkeypatch.setattr(_learner, "solve_white", refuse)
    learner = VBPITCRegressor(20, random_state=0)._learner()
    state = learner.start(X, Targets(y), np.random.RandomState(0), None)
    after = learner.train(state, X, Targets(y), lambda make: True)
    assert after.n_iter == 1
    with pytest.raises(AssertionError, match="further"):
        learner.train(state, X, Targets(y), lambda make: False)


def test_training_that_loses_its_start_returns_it(monkeypatch):
    X, y = lines_of_groups()
    options = {"n_blocks": 3, "max_iter": 1, "noise_kernel": None, "random_state": 0}
    model = VBPICRegressor(30, solver="stochastic", **options)
    starts = []

    def lose(model, parameters, data, rule, **options):
        starts.append(parameters)
        return Reached(replace(parameters, noise_variance=1.0), (0.0,))

    monkeypatch.setattr(_learner, "solve_stochastic", lose)
    model.fit(X, y)
    assert_array_equal(model._state.parameters.pack(), starts[0].pack())
    assert model.lower_bounds_ != [model.lower_bound_]


@pytest.mark.parametrize("cls", [VBPITCRegressor, VBPICRegressor])
@pytest.mark.every_nth("cls", 2)
def test_mini_batches_of_blocks_that_fail_leave_what_white_noise_learns(monkeypatch, cls):
    """On 5,300 rows with thirty inputs and next to no noise PIC ended 1.6e5 below DTC."""
    X, y = linear_rows(n=90, d=4)
    options = {"n_inducing": 20, "solver": "stochastic", "random_state": 0}
    train = _learner.solve_stochastic

    def fail(model, parameters, data, rule, **options):
        if not model.structure.correlated:
            return train(model, parameters, data, rule, **{**options, "max_iter": 8})
        return Reached(replace(parameters, alpha=1e3, noise_variance=1e-6), (0.0,))

    monkeypatch.setattr(_learner, "solve_stochastic", fail)
    monkeypatch.setattr(_learner, "start_from_blocks", lambda model, start, *_, **__: start)
    white = VBDTCRegressor(**options).fit(X, y)
    model = cls(noise_kernel=None, n_blocks=3, **options).fit(X, y)
    assert_allclose(model.lower_bound_, white.lower_bound_, atol=1.0)
    assert_allclose(model.noise_variance_, white.noise_variance_, rtol=1e-6)
    assert model.lower_bounds_ == [-model._state.log_unit]


def problem_of_blocks(y, X, n_blocks=3):
    learner = VBPITCRegressor(30, n_blocks=n_blocks, random_state=0)._learner()
    state = learner.start(X, Targets(y), np.random.RandomState(0), None)
    data = Data(X, y, state.model.coordinates, state.target)
    data, _ = learner._divide(data, Targets(y), state.parameters.nu)
    return state.model, state.parameters, data


@pytest.mark.thorough
def test_f_follows_the_noise_where_its_own_start_is_hopeless():
    X, y = lines_of_groups()
    model, p, data = problem_of_blocks(y, X)
    own, after = (
        start_from_blocks(model, p, data, np.random.RandomState(0), follow=follow)
        for follow in (False, True)
    )
    assert_array_equal(own.nu, p.nu)
    assert own.alpha == p.alpha
    assert_array_equal(after.noise_theta, own.noise_theta)
    # the same covariance: amplitude alpha^2 and length scales of the user's units
    assert_allclose(after.alpha**2, np.exp(own.noise_theta[0]), rtol=1e-12)
    assert_allclose(model.coordinates.scale / after.nu, np.exp(own.noise_theta[1:]), rtol=1e-12)


def test_few_blocks_stand_for_all_where_f_follows_the_noise(monkeypatch, rng):
    """All blocks here are the same one: the variances of q(theta) are those that all suggest."""
    X = np.tile(rng.standard_normal((15, 2)), (8, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * np.tile(rng.standard_normal(15), 8)
    model, p, data = problem_of_blocks(y, X)
    data = replace(data, blocks=[np.arange(k, k + 15) for k in range(0, 120, 15)])
    monkeypatch.setattr(_start, "_HOPELESS", -np.inf)
    monkeypatch.setattr(_start, "fit_noise_to_blocks", lambda model, start, *_: start)
    found = []
    for n_blocks in (2, 8):
        monkeypatch.setattr(_start, "_FEW_BLOCKS", n_blocks)
        after = start_from_blocks(model, p, data, np.random.RandomState(0), follow=True)
        found.append(np.append(after.xi, after.beta))
    assert_allclose(found[0], found[1], rtol=1e-6)
    assert np.all(found[0] != np.append(p.xi, p.beta))


@pytest.mark.parametrize(
    "n, noise, weight, follows",
    [
        (300, 0.15, None, True),
        *(
            pytest.param(1_500, *case, marks=pytest.mark.thorough)
            for case in [(0.15, None, True), (0.25, None, False), (0.2, 0.5, True)]
        ),
    ],
)
def test_f_follows_the_noise_where_few_passes_would_not_mend_its_start(n, noise, weight, follows):
    """Two nats a row below the noise's start: a fit to 100,000 rows ended with twice the RMSE.

    Where it is 1.2 nats below, it keeps its own. These are nats for each copy.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 3] + noise * rng.standard_normal(n)
    model, p, data = problem_of_blocks(y, X, n_blocks=n // 100)
    if weight is not None:
        data = replace(data, weight=np.full(len(y), weight))
    after = start_from_blocks(model, p, data, np.random.RandomState(0), follow=True)
    assert (after.nu[2] < 0.1 * p.nu[2]) == follows  # that input says nothing about y


def test_f_keeps_its_own_start_where_the_noise_is_large():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(300, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=300)
    model, p, data = problem_of_blocks(y, X)
    after = start_from_blocks(model, p, data, np.random.RandomState(0), follow=True)
    assert_array_equal(after.nu, p.nu)
