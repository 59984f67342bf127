"""What each row is without its own label, and the exclusion that is learned from it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss

from skvbgp import DecoupledGPClassifier, EPDTCClassifier
from skvbgp.base import Labels
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._class_learner import make_signs
from skvbgp.decoupled._learner import scale_rows
from skvbgp.decoupled._left_out import leave_out
from skvbgp.kernels import RBF, Constant
from tests.decoupled.cases import small
from tests.oracles import decoupled as oracles


def load_some(step):
    X, y = load_iris(return_X_y=True)
    return X[::step], y[::step]


def fixed(**options):
    """A model whose bases have every row, at hyperparameters that are not learned."""
    options = {"max_iter": 200, **options}
    kernel = Constant(4.0) * RBF([1.0, 1.0, 1.0, 1.0])
    return DecoupledGPClassifier(
        kernel=kernel, learn_hyperparameters=False, random_state=0, **options
    )


def score_left_out(model, X, y, weight=None, total=None):
    functions = model._state.functions
    signs = make_signs(Labels(model.classes_, y, weight))
    rows = scale_rows(functions, X, signs)
    q = functions.posterior
    return leave_out(q.process, q.model.likelihood, rows, total or rows.counts.sum())


@pytest.mark.parametrize(
    "parametrization", ["orthogonal", pytest.param("hybrid", marks=pytest.mark.thorough)]
)
def test_scores_are_those_of_the_other_rows_sites(parametrization):
    X, y = load_some(10)
    weight = np.linspace(0.2, 3.0, len(y))
    model = fixed(parametrization=parametrization, max_iter=200).fit(X, y, sample_weight=weight)
    functions = model._state.functions
    scaled = functions.coordinates.scaled(X)
    process = functions.posterior.process
    mean, variance = process.moments(scaled)
    K = process.kernel(Basis(scaled), Basis(scaled))
    signs = make_signs(Labels(model.classes_, y)).y
    found = score_left_out(model, X, y, weight)
    for c in range(3):
        told = signs[:, c], mean[:, c], variance[:, c], weight
        assert_allclose(found[:, c], oracles.left_out_scores(K, *told), atol=3e-3)


@pytest.mark.thorough
def test_scores_are_those_of_fits_without_the_row():
    """But for what the other rows' sites then become."""
    X, y = load_some(3)
    model = fixed().fit(X, y)
    found, own = score_left_out(model, X, y), model.decision_function(X)
    rows = np.arange(0, 50, 7)
    expected = []
    for i in rows:
        others = np.arange(50) != i
        expected.append(fixed().fit(X[others], y[others]).decision_function(X[i : i + 1])[0])
    lost = np.abs(own[rows] - expected)
    assert np.abs(found[rows] - expected).max() < 0.5 * lost.max()
    assert_allclose(found[rows], expected, atol=0.1)


@pytest.mark.thorough
def test_scores_are_nearly_those_of_ep():
    """Whose sites are others, at the same kernel."""
    X, y = load_some(6)
    seen = []

    def keep(scores, codes, weight):
        seen.append(scores)
        return 0.0

    model = fixed(max_iter=60).fit(X, y)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("skvbgp.ep._learner.learn_exclusion", keep)
        options = {"inducing_inputs": X, "learn_hyperparameters": False}
        EPDTCClassifier(kernel=model.kernel_, **options).fit(X, y)
    assert_allclose(score_left_out(model, X, y), seen[-1], atol=0.3)


def test_some_rows_stand_for_all():
    """Each for as many copies, of which one is left out."""
    X, y = load_some(6)
    model = fixed(max_iter=2).fit(X, y)
    expected = score_left_out(model, X, y, np.full(len(y), 2.0))
    assert_allclose(score_left_out(model, X, y, total=2.0 * len(y)), expected)


@pytest.mark.parametrize("parametrization", ["orthogonal", "decoupled"])
def test_rows_that_say_nothing_and_rows_that_are_known(parametrization):
    X, y = load_some(6)
    model = fixed(parametrization=parametrization, max_iter=2).fit(X, y)
    for weight in (np.full(len(y), 1e-12), np.full(len(y), 1e9)):
        assert np.isfinite(score_left_out(model, X, y, weight)).all()


@pytest.mark.thorough
def test_classes_that_separate_are_more_certain():
    X, y = load_digits(n_class=4, return_X_y=True)
    X_new, y_new, X, y = X[200:], y[200:], X[:200], y[:200]
    model = small(DecoupledGPClassifier, n_mean_basis=0, n_cov_basis=100, max_iter=30).fit(X, y)
    own = ndtr(model.decision_function(X_new))
    normalised = own / own.sum(axis=1, keepdims=True)
    assert model.exclusion_ > 0.5
    assert log_loss(y_new, model.predict_proba(X_new)) < 0.95 * log_loss(y_new, normalised)
    assert np.array_equal(model.predict(X_new), own.argmax(axis=1))


def test_classes_that_are_noise_exclude_nothing(rng):
    X, y = rng.standard_normal((150, 2)), rng.integers(0, 3, 150)
    assert small(DecoupledGPClassifier).fit(X, y).exclusion_ == 0.0


def test_two_classes_need_none():
    X, y = load_some(3)
    model = small(DecoupledGPClassifier).fit(X, y > 0)
    assert model.exclusion_ == 0.0
    assert_allclose(model.predict_proba(X)[:, 1], ndtr(model.decision_function(X)))


def test_it_is_pickled():
    X, y = load_some(3)
    model = small(DecoupledGPClassifier, max_iter=8).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.exclusion_ == model.exclusion_
    assert_allclose(copy.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "n_known"),
    [
        ({}, 120),
        pytest.param({"forgetting": 0.999}, 120, marks=pytest.mark.thorough),
        ({"forgetting": 60}, 60),
    ],
)
@pytest.mark.every_nth("options", 2)
def test_a_stream_learns_it_of_the_rows_that_are_kept(options, n_known, monkeypatch):
    seen = []

    def keep(scores, codes, weight):
        seen.append(len(codes))
        return 0.5

    monkeypatch.setattr("skvbgp.decoupled._class_learner.learn_exclusion", keep)
    X, y = load_iris(return_X_y=True)
    model = small(DecoupledGPClassifier, **options)
    for chunk in (slice(0, None, 3), slice(1, None, 3), slice(2, 60, 3)):
        model.partial_fit(X[chunk], y[chunk], classes=np.unique(y))
    assert seen[-1] == n_known
    assert model.exclusion_ == 0.5


def test_of_many_rows_some_are_asked(monkeypatch):
    seen = []

    def keep(scores, codes, weight):
        seen.append(scores)
        return 0.0

    monkeypatch.setattr("skvbgp.decoupled._class_learner.learn_exclusion", keep)
    monkeypatch.setattr("skvbgp.decoupled._class_learner._LINK_ROWS", 75)
    X, y = load_some(1)
    small(DecoupledGPClassifier).fit(X, y)
    assert seen[-1].shape == (75, 3)


@pytest.mark.parametrize("replay", [0, 40])
@pytest.mark.thorough
def test_a_stream_of_fewer_rows_keeps_that_of_the_first_call(replay):
    X, y = load_digits(n_class=4, return_X_y=True)
    model = small(DecoupledGPClassifier, n_cov_basis=40, max_iter=10, replay=replay)
    first = model.partial_fit(X[:80], y[:80], classes=np.unique(y)).exclusion_
    assert first > 0.0
    assert model.partial_fit(X[80:110], y[80:110]).exclusion_ == first


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.1, 1: 0.5}])
@pytest.mark.every_nth("class_weight", 3)
def test_a_stream_knows_how_often_rows_count_in_all(class_weight, monkeypatch):
    """Also those that it knew before weights of classes changed."""
    totals = []

    def keep(process, likelihood, rows, total):
        totals.append((total, rows.counts.sum()))
        return leave_out(process, likelihood, rows, total)

    monkeypatch.setattr("skvbgp.decoupled._class_learner.leave_out", keep)
    X, y = load_some(2)
    model = small(DecoupledGPClassifier).partial_fit(X[:40], y[:40], classes=np.unique(y))
    model.set_params(class_weight=class_weight).partial_fit(X[40:], y[40:])
    assert_allclose(*np.transpose(totals))
    assert len(totals) > 1
