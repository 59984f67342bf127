"""New rows of a stream: points for them, what is kept of q(f), and the noise."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.decoupled import _new_rows as new_rows
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Evaluation
from skvbgp.decoupled._coupled import keep_points
from skvbgp.decoupled._direct import keep_points as keep_direct
from skvbgp.decoupled._learner import DecoupledLearner, scale_rows
from skvbgp.decoupled._likelihoods import StudentT
from skvbgp.decoupled._training import Batch
from tests.decoupled.cases import small
from tests.decoupled.problems import M_BETA, D, make_problem
from tests.fits import FitOnce
from tests.oracles import decoupled as oracles

KEPT = np.array([0, 2, 3])
fit_once = FitOnce()
OPTIONS = [{}, {"parametrization": "hybrid"}, {"likelihood": "student_t"}]
each_kernel = pytest.mark.parametrize("kind", ["generalized", "inputwise", "plain"])


# -- points ------------------------------------------------------------------------------------


@each_kernel
def test_the_points_that_explain_the_rows_are_left(kind, rng):
    model, p, _, X, _ = make_problem(kind=kind)
    basis, new, counts = p.cov_basis, rng.standard_normal((5, D)), rng.uniform(0.5, 3.0, len(X))
    points = basis.joined(Basis(new))
    worth = np.repeat([1.0, 1.0 / new_rows._LEAST_GAIN], [M_BETA, 5])
    kernels = model.kernel(Basis(X), points), model.kernel(points, points)
    for size in (2, 4, 7, 9):
        expected = oracles.choose_points(*kernels, counts, size, new_rows._JITTER, worth)
        kept = new_rows.choose_points(model.kernel, basis, Basis(new), X, counts, size)
        assert_array_equal(np.flatnonzero(np.concatenate(kept)), expected)


@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
@each_kernel
def test_what_is_left_of_q_is_its_marginal(parametrization, kind):
    model, p, q, X, _ = make_problem(parametrization, kind)
    kernel, basis, rows = model.kernel, p.cov_basis, Basis(X)
    before = Evaluation(model, p, q).process
    K, K_ab = kernel(basis, basis), kernel(basis, p.mean_basis)
    A = K @ before.T
    mean = (K_ab @ before.a + A @ before.w)[KEPT, 0]
    covariance = (K + A @ before.M[0] @ A.T)[np.ix_(KEPT, KEPT)]

    after = Evaluation(model, p.keep_points(KEPT), keep_points(K, q, KEPT)).process
    K_xz, K_zz = kernel(rows, basis)[:, KEPT], K[np.ix_(KEPT, KEPT)]
    expected, spread, _ = oracles.sparse_gp(kernel(rows, rows), K_xz, K_zz, mean, covariance)
    beyond = kernel(rows, p.mean_basis) - K_xz @ np.linalg.solve(K_zz, K_ab[KEPT])
    found, variance = after.moments(X)
    assert_allclose(found[:, 0], expected + (beyond @ before.a)[:, 0], rtol=1e-5, atol=1e-7)
    assert_allclose(variance[:, 0], np.diag(spread), rtol=1e-5)


def test_what_is_left_of_a_direct_covariance():
    """B of the points that stay is that of all, seen through what they predict of the others."""
    model, p, _, _, _ = make_problem("decoupled", n_functions=2)
    K, L = model.kernel(p.cov_basis, p.cov_basis), np.tril(p.L0)
    after = keep_direct(K, L, KEPT)
    W = np.linalg.solve(K[np.ix_(KEPT, KEPT)], K[KEPT]).T
    for one, other in zip(L, after, strict=True):
        assert_array_equal(other, np.tril(other))
        assert_allclose(other @ other.T, W.T @ one @ one.T @ W, rtol=1e-5, atol=1e-7)


def test_no_point_needs_to_stay():
    model, p, q, _, _ = make_problem()
    K, none = model.kernel(p.cov_basis, p.cov_basis), np.arange(0)
    assert all(len(one.mean) == 0 for one in keep_points(K, q, none))
    model, p, _, _, _ = make_problem("decoupled", n_functions=2)
    K = model.kernel(p.cov_basis, p.cov_basis)
    assert keep_direct(K, np.tril(p.L0), none).shape == (2, 0, 0)


def test_all_points_may_be_replaced():
    """Without a warning, which would be an error here."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 60)
    model = small(DecoupledGPRegressor, n_mean_basis=12, max_iter=1).fit(X, y, weight)
    before = model._state.parameters.beta
    after = model.partial_fit(X, y, weight)._state.parameters.beta
    assert not (after[:, None] == before).all(axis=2).any()
    assert np.isfinite(model.predict(X, return_std=True)).all()


# -- the noise ---------------------------------------------------------------------------------


def test_students_noise_is_fitted_again_by_steps_that_raise_its_likelihood(rng):
    likelihood, theta = StudentT(), np.array([-0.5])
    y, m, s = rng.standard_normal(40), rng.standard_normal(40), rng.uniform(0.1, 1.0, 40)
    counts, values = rng.uniform(0.5, 2.0, 40), []
    for _ in range(200):
        expected = likelihood.expected(theta, y, m, s)
        values.append(counts @ expected.value)
        theta = likelihood.refit(theta, np.average(expected.dtheta, axis=0, weights=counts))
    assert np.all(np.diff(values) > -1e-10)
    assert values[1] > values[0] + 0.1
    assert_allclose(counts @ likelihood.expected(theta, y, m, s).dtheta, 0.0, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
@pytest.mark.every_nth("likelihood", 2)
def test_learned_noise_stays_when_the_unit_of_y_changes(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 1))
    model = small(DecoupledGPRegressor, likelihood=likelihood).fit(X, np.sin(3.0 * X[:, 0]))
    state = model._state
    target = replace(state.target, unit=9.0)
    moved = state.move_to(target, knows_noise=True)
    noise = state.model.likelihood.noise_variance
    assert_allclose(
        81.0 * noise(moved.parameters.noise), state.target.unit**2 * noise(state.parameters.noise)
    )
    relative = state.move_to(target, knows_noise=False).parameters.noise
    assert_array_equal(relative, state.parameters.noise)


# -- streams that come to new places -----------------------------------------------------------


def make_rows(n, low, d, seed):
    """Rows with x_0 in [low, low + 1], and sin 6 x_0 plus a wave of another input."""
    X = np.random.default_rng(seed).uniform(0.0, 1.0, (n, d)) + low * np.eye(d)[0]
    return X, np.sin(6.0 * X[:, 0]) + (np.cos(4.0 * X[:, 1]) if d > 1 else 0.0)


@pytest.mark.parametrize("factor", [1.0, 20.0])
@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "options",
    [{}, {"parametrization": "hybrid"}, {"likelihood": "student_t", "max_iter": 60}],
)
@pytest.mark.in_turn("options", "factor")
@pytest.mark.thorough
def test_old_rows_keep_their_standard_deviation(options, d, factor):
    """With full bases: it was 2 and 18 times as large, as the noise was to explain the new rows."""
    X, f = make_rows(400, 0.0, d, 0)
    X_new, f_new = make_rows(150, 2.0, d, 1)
    noise = 0.1 * np.random.default_rng(2).standard_normal(550)
    model = DecoupledGPRegressor(300, 80, random_state=0, **{"max_iter": 30, **options})
    model.partial_fit(X, f + noise[:400])
    basis, (_, before) = model.cov_basis_, model.predict(X, return_std=True)
    assert len(basis) == 80
    model.partial_fit(X_new, factor * f_new + noise[400:])
    mean, std = model.predict(X, return_std=True)
    assert len(model.cov_basis_) == 80
    assert np.mean(std) < 1.2 * np.mean(before)
    share = 2.0 if "likelihood" in options else 1.0  # of sixteen seeds the worst has three halves
    assert np.std(mean - f) < 0.06 * share
    error = model.predict(X_new) - factor * f_new
    assert np.std(error) < 0.07 * share * factor * np.std(f_new)


@pytest.fixture
def stream():
    """A learner with full bases and its state, and an ascent, rows and a batch of another place."""
    X, f = make_rows(200, 0.0, 1, 0)
    model = fit_once(DecoupledGPRegressor(120, 80, max_iter=5, random_state=0), X, f)
    learner, state = model._learner(), model._state
    X, y = make_rows(12, 2.0, 1, 1)
    _, targets = model._prepare(X, y, reset=False, sample_weight=None, y_var=None)
    rng = np.random.RandomState(0)
    sample = learner._draw_sample(state, state.replay, X, targets, rng)
    ascent = replace(learner._ascent(rng, 0.1), sample=sample)
    return ascent, state, X, y, targets


def test_new_rows_are_told_of_before_any_step(stream):
    """As new points are at the rows, q(f) becomes what it is given them."""
    ascent, state, X, y, targets = stream
    state, points = ascent.make_room(state, state.coordinates.scaled(X))
    mean, covariance = ascent.join(state, points)[0].posterior.joint(X, False)
    noise = state.model.likelihood.noise_variance(state.parameters.noise) * state.target.unit**2
    gain = np.linalg.solve(covariance + noise * np.eye(12), covariance).T
    after = ascent.meet(state, Batch(scale_rows(state, X, targets), 12, 12.0, points))
    assert_allclose(after.posterior.joint(X, False)[0], mean + gain @ (y - mean), rtol=1e-3)


def test_the_steps_of_points_that_stay_go_on(stream):
    ascent, state, X, *_ = stream
    after, _ = ascent.make_room(state, state.coordinates.scaled(X))
    kept = (after.parameters.beta[:, None] == state.parameters.beta).all(axis=2).argmax(axis=1)
    assert 60 < len(kept) < 80
    for moment, other in (
        (state.adam.first, after.adam.first),
        (state.adam.second, after.adam.second),
    ):
        before = state.parameters.unpack(moment).beta
        assert_array_equal(after.parameters.unpack(other).beta, before[kept])
        assert np.ptp(before) > 0.0


@pytest.mark.thorough
def test_noise_of_a_new_place_is_learned_once_it_is_known():
    """What is not yet explained is no noise; noise that is there in later calls is."""
    X, f = make_rows(400, 0.0, 1, 0)
    X_new, f_new = make_rows(450, 2.0, 1, 1)
    rng = np.random.default_rng(2)
    model = DecoupledGPRegressor(300, 60, max_iter=60, random_state=0)
    model.partial_fit(X, f + 0.1 * rng.standard_normal(400))
    y_new = f_new + 0.5 * rng.standard_normal(450)
    first, *others = np.split(np.arange(450), 3)
    model.partial_fit(X_new[first], y_new[first])
    assert model.noise_variance_ < 0.13**2
    for rows in others:
        model.partial_fit(X_new[rows], y_new[rows])
    assert 0.2**2 < model.noise_variance_ < 0.45**2  # 0.37 is that of all rows


def test_classes_of_new_places():
    X, f = make_rows(100, 0.0, 1, 0)
    X_new, f_new = make_rows(50, 3.0, 1, 1)
    model = DecoupledGPClassifier(100, 40, max_iter=30, random_state=0)
    model.partial_fit(X, f > 0.0, classes=[False, True])
    before = model.score(X, f > 0.0)
    model.partial_fit(X_new, f_new > 0.0)
    assert np.sum(model.cov_basis_ > 2.0) >= 5
    assert model.score(X, f > 0.0) > before - 0.02
    assert model.score(X_new, f_new > 0.0) > 0.93


def test_points_stay_where_nothing_is_learned():
    X, f = make_rows(60, 0.0, 1, 0)
    model = small(DecoupledGPRegressor, learn_hyperparameters=False).fit(X, f)
    points, noise = model.cov_basis_, model.noise_variance_
    model.partial_fit(X + 2.0, f)
    assert_allclose(model.cov_basis_, points)
    assert_allclose(model.noise_variance_, noise * np.var(np.tile(f, 2)) / np.var(f))


@pytest.mark.parametrize(("n", "share"), [(1, 0.125), (4, 0.5), (40, 1.0)])
@pytest.mark.every_nth("n", 2)
def test_rows_that_pay_for_less_than_a_step_take_a_shorter_one(n, share, rng, monkeypatch):
    """A row visits others so many times, whatever the size of a batch."""
    monkeypatch.setattr("skvbgp.decoupled._learner._VISITS", 5)
    X = rng.uniform(-2.0, 2.0, (140, D))
    model = small(DecoupledGPRegressor, batch_size=40, learning_rate=0.02, max_iter=5).fit(
        X[:100], X[:100, 0]
    )
    rates, ascent = [], DecoupledLearner._ascent

    def watch(learner, rng, learning_rate):
        rates.append(learning_rate)
        return ascent(learner, rng, learning_rate)

    monkeypatch.setattr(DecoupledLearner, "_ascent", watch)
    model.partial_fit(X[100 : 100 + n], X[100 : 100 + n, 0])
    assert_allclose(rates, [0.02 * share])
