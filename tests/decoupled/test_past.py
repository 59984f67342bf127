"""The posterior so far as a prior: the divergence from it, and streams that keep no rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Evaluation
from skvbgp.decoupled._likelihoods import Gaussian, Probit
from tests.decoupled.cases import small
from tests.decoupled.problems import (
    M_ALPHA,
    PARAMETRIZATIONS,
    as_rows,
    is_there,
    make_past,
    make_problem,
)
from tests.derivatives import assert_slopes
from tests.oracles.decoupled import gaussian_expectation, kl_theorem_1

each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
EVERY_POINT = np.arange(M_ALPHA)
SOME_POINTS = np.array([4, 1, 3])


# -- the divergence ----------------------------------------------------------------------------


@each
@pytest.mark.parametrize("n_functions", [1, 2])
@pytest.mark.parametrize("kind", ["generalized", "inputwise", "plain"])
@pytest.mark.in_turn("n_functions", "kind")
@pytest.mark.every_nth("n_functions", 3)
def test_gradient(parametrization, n_functions, kind):
    likelihood = Gaussian() if n_functions == 1 else Probit()
    problem = (parametrization, kind, likelihood)
    model, p, q, X, y = make_problem(*problem, n_functions=n_functions)
    past = make_past(*problem, n_functions=n_functions)

    def value(x):
        evaluation = Evaluation(model, p.unpack(x), q, past)
        return evaluation.evaluate(as_rows(X, y), 1.7, SOME_POINTS)[0]

    _, gradient, _ = Evaluation(model, p, q, past).evaluate(as_rows(X, y), 1.7, SOME_POINTS)
    assert_slopes(value, p.pack(), gradient.pack(), atol=5e-6, where=is_there(p))


@each
@pytest.mark.parametrize("kind", ["generalized", "inputwise", "plain"])
@pytest.mark.in_turn("kind")
def test_theorem_1(parametrization, kind, monkeypatch):
    """Eq. (17), with the mean functions in both bases."""
    monkeypatch.setattr("skvbgp._core.linalg.JITTER", 1e-14)
    model, p, q, X, y = make_problem(parametrization, kind)
    past = make_past(parametrization, kind)
    kernel = model.kernel.with_theta(p.theta)
    K_b = kernel(p.cov_basis, p.cov_basis)
    both = [p.mean_basis, p.cov_basis]

    def gram(s, t):
        bases = [both if name in "aA" else [p.cov_basis] for name in (s, t)]
        return np.block([[kernel(one, other) for other in bases[1]] for one in bases[0]])

    def say(process):
        """Coefficients of the mean in both bases, and B of the covariance."""
        R = -process.T @ process.M[0] @ process.T.T
        a = np.concatenate([process.a, process.T @ process.w])[:, 0]
        return a, np.linalg.inv(np.linalg.inv(R) - K_b)

    evaluation = Evaluation(model, p, q, past)
    before = as_process(model, p, past)
    kl = kl_theorem_1(gram, *say(evaluation.process), *say(before))
    mean, variance = (part[:, 0] for part in evaluation.process.moments(X))
    noise = -0.5 * 5 * 0.5 * 0.3**2  # five rows' information about it, and its distance
    expected = gaussian_expectation(y[:, 0], mean, variance, np.exp(p.noise[0])) - kl + noise
    found = evaluation.evaluate(as_rows(X, y), 1.0, EVERY_POINT)[0]
    assert_allclose(found, expected, rtol=1e-6)


def as_process(model, p, past):
    """The past as a process: its coefficients and q(u), in a model that says them as they are."""
    frame = "decoupled" if model.is_direct else "orthogonal"
    kernel = model.kernel.with_theta(p.theta)
    a0 = past.process.a * kernel.diag(p.mean_basis)[:, None]
    L0 = p.L0
    if model.is_direct:
        L0 = past.process.L * kernel.diag(p.cov_basis)[:, None]
    p = replace(p, a0=a0, L0=L0)
    return Evaluation(replace(model, parametrization=frame), p, past.process.q or None).process


@each
def test_nothing_learned_since_is_no_divergence(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    past = Evaluation(model, p, q).as_past(7)
    evaluation = Evaluation(model, p, q, past)
    mean, variance = (part[:, 0] for part in evaluation.process.moments(X))
    expected = gaussian_expectation(y[:, 0], mean, variance, np.exp(p.noise[0]))
    assert_allclose(evaluation.evaluate(as_rows(X, y), 1.0, EVERY_POINT)[0], expected, rtol=1e-8)


# -- streams -----------------------------------------------------------------------------------


def make_data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, 3.0 + np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(n)


def stream(model, X, y, size=40, **options):
    for start in range(0, len(y), size):
        model.partial_fit(X[start : start + size], y[start : start + size], **options)
    return model


def test_without_a_mean_basis_a_stream_is_the_conjugate_posterior_of_all_rows():
    """Chunks of any size: their information adds up, at the kernel and the noise of the first."""
    X, y = make_data(90)
    model = small(
        DecoupledGPRegressor,
        n_mean_basis=0,
        learn_hyperparameters=False,
        batch_size=100,
        replay=0,
    ).fit(X[:40], y[:40])
    state, process = model._state, model._state.posterior.process
    A = process.kernel(Basis(state.coordinates.scaled(X)), process.beta) @ process.T
    noise = np.exp(state.parameters.noise[0])
    precision = np.eye(A.shape[1]) + A.T @ A / noise
    shift = A.T @ state.target.scaled(y) / noise
    for sizes in ([50], [20, 30]):
        copy = pickle.loads(pickle.dumps(model))
        for rows in np.split(np.arange(40, 90), np.cumsum(sizes)[:-1]):
            copy.partial_fit(X[rows], y[rows])
        (q,) = copy._state.q
        assert_allclose(q.precision, precision, rtol=1e-8, atol=1e-8)
        assert_allclose(q.shift, shift, rtol=1e-8, atol=1e-8)


@each
@pytest.mark.every_nth("parametrization", 3)
def test_new_points_change_nothing(parametrization):
    X, y = make_data(80)
    model = small(DecoupledGPRegressor, parametrization=parametrization, replay=0)
    model.partial_fit(X[:40], y[:40]).set_params(n_mean_basis=27, n_cov_basis=15)
    state = model._state
    ascent = model._learner()._ascent(np.random.RandomState(0), 0.05)
    points = state.coordinates.scaled(X[40:47])
    ascent, grown = ascent.after(state, points, 40)
    assert len(grown.parameters.beta) == len(state.parameters.beta) + 7
    after = as_process(grown.model, grown.parameters, ascent.past)
    rows = state.coordinates.scaled(X)
    for found, expected in zip(
        after.moments(rows), state.posterior.process.moments(rows), strict=True
    ):
        assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@each
@pytest.mark.in_turn("parametrization")
@pytest.mark.thorough
def test_a_stream_without_rows_learns(parametrization):
    X, y = make_data(400)
    max_iter = 60 if parametrization == "decoupled" else 10
    options = {"parametrization": parametrization, "max_iter": max_iter}
    model = small(DecoupledGPRegressor, replay=0, **options)
    stream(model, X[:240], y[:240])
    mean, std = model.predict(X[240:], return_std=True)
    assert np.sqrt(np.mean((y[240:] - mean) ** 2)) < 0.35 * np.std(y)
    assert np.mean(np.abs(y[240:] - mean) < 1.96 * std) > 0.85
    assert model.n_samples_seen_ == 240
    assert len(model.mean_basis_) == 20


def test_hyperparameters_and_points_stay():
    """New points join, and the noise is learned on."""
    X, y = make_data(120)
    model = small(DecoupledGPRegressor, n_mean_basis=60, basis_growth=30, replay=0, max_iter=1)
    before = clone(model).partial_fit(X[:40], y[:40])
    stream(model, X, y)
    assert_allclose(model.kernel_.theta, before.kernel_.theta)
    assert_allclose(model.mean_basis_[: len(before.mean_basis_)], before.mean_basis_)
    assert len(model.mean_basis_) > len(before.mean_basis_)
    assert model.noise_variance_ != before.noise_variance_
    kept = stream(clone(model).set_params(learn_hyperparameters=False), X, y)
    assert_allclose(kept.noise_variance_, 0.1 * np.var(y[:40]))


def test_the_past_holds_the_noise():
    """One row, however far away, moves it by no more than its share of all rows."""
    X, y = make_data(101)
    y[100] += 3.0
    model = small(DecoupledGPRegressor, replay=0, batch_size=200, max_iter=20).fit(X[:100], y[:100])
    before = model.noise_variance_
    model.partial_fit(X[100:], y[100:])
    assert 1.0 < model.noise_variance_ / before < 4.0


@pytest.mark.parametrize(
    "n_classes", [pytest.param(2, marks=pytest.mark.slow), 3], ids=["two", "three"]
)
@pytest.mark.thorough
def test_classes(n_classes):
    X, y = make_data(300)
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = small(DecoupledGPClassifier, replay=0, max_iter=10)
    stream(model, X[:200], labels[:200], classes=np.arange(n_classes))
    assert model.score(X[200:], labels[200:]) > 0.7
    assert len(model._state.functions.replay.targets.y) == 0


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["student_t", "poisson"])
def test_other_likelihoods(likelihood):
    X, y = make_data(300)
    if likelihood == "poisson":
        y = np.random.default_rng(1).poisson(np.exp(y - 2.0))
    model = small(DecoupledGPRegressor, replay=0, likelihood=likelihood, max_iter=20)
    assert stream(model, X[:200], y[:200]).score(X[200:], y[200:]) > 0.6


def test_the_first_rows_are_kept_until_they_are_enough():
    X, y = make_data(50)
    model, kept = small(DecoupledGPRegressor, replay=0, max_iter=1), []
    for rows in np.split(np.arange(50), [10, 20, 35]):
        model.partial_fit(X[rows], y[rows])
        kept.append(len(model._state.replay.targets.y))
    assert kept == [10, 20, 0, 0]
    assert model.n_samples_seen_ == 50


def test_the_model_does_not_grow_with_the_stream():
    X, y = make_data(400)
    model, sizes = small(DecoupledGPRegressor, replay=0, max_iter=1), []
    for start in range(0, 400, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
        model.predict(X[:1])  # what that keeps is not pickled
        sizes.append(len(pickle.dumps(model._state)))
    assert max(sizes) - min(sizes) < 200


def test_fewer_rows_may_be_kept():
    X, y = make_data(200)
    model = small(DecoupledGPRegressor, replay=50, max_iter=1)
    for start in range(0, 200, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
        assert len(model._state.replay.targets.y) == 50
    kept = set(map(tuple, model._state.replay.X))
    assert len(kept) == 50
    assert kept <= set(map(tuple, X))
    assert any(tuple(row) in kept for row in X[:100])
    assert any(tuple(row) in kept for row in X[100:])


@pytest.mark.parametrize("replay", [-1, 31, 2.5])
def test_too_few_rows_to_draw_from(replay):
    X, y = make_data(40)
    with pytest.raises(ValueError, match="replay"):
        small(DecoupledGPRegressor, replay=replay).fit(X, y)


def test_a_call_that_fails_changes_nothing():
    X, y = make_data(80)
    model = small(DecoupledGPRegressor, replay=0, max_iter=1).fit(X[:40], y[:40])
    before = dict(vars(model))
    for bad in (np.nan, 1e200):
        with pytest.raises(ValueError):
            model.partial_fit(X[40:], np.append(y[40:-1], bad))
        assert vars(model) == before
