"""Classes by kernels of inputs in units of their ranges."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss

from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp.classes._learner import _rebind
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._votes import Votes
from skvbgp.gp.classes._warp import RangeUnits, WarpedCovariance, find_ranges
from skvbgp.kernels import RBF
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.gp.searches import try_few_kernels

pytestmark = pytest.mark.usefixtures("quick_searches")

RANGES = RangeUnits((2.0, 0.5))


def make(kernel, warp):
    return ClassProcess(Process(kernel, 0.2, np.inf), 2, warp=warp, link=Link(4.0, 0.7, 0.2))


@pytest.mark.parametrize("gaps", [False, True])
def test_inputs_in_other_units_are_other_length_scales(rng, gaps):
    """Those of all inputs follow from one, in training, too."""
    X = rng.standard_normal((14, 2))
    if gaps:
        X = append_variances(X, rng.exponential(size=X.shape) * (rng.uniform(size=X.shape) < 0.4))
    by_input = RBF([1.3 / 2.0, 1.3 / 0.5]).bind(2)
    votes, one = Votes.of(X, np.eye(3)[np.arange(14) % 3]), RBF(1.3, isotropic=True).bind(2)
    model, expected = make(one, RANGES), make(by_input, None)
    value, gradient = model.evidence(votes)
    assert_allclose(value, expected.evidence(votes)[0], rtol=1e-10)
    numerical = numerical_gradient(lambda x: model.with_vector(x).log_evidence(votes), model.vector)
    assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-6)
    found, literal = WarpedCovariance(one, 2, RANGES), UncertainCovariance(by_input, 2)
    for name in ("diag", "whole", "lost"):
        assert_allclose(getattr(found, name)(X), getattr(literal, name)(X), atol=1e-12)
    assert_allclose(found(X, X[:3]), literal(X, X[:3]))


def test_ranges_become_alike_and_distances_stay(rng):
    """But for what encodes one input together, and what has one value."""
    rare = (rng.uniform(size=300) < 0.02) * 1.0
    X = np.column_stack([rng.uniform(size=300), rng.standard_normal(300), rare, rare, 1.0 - rare])
    X /= X.std(axis=0)
    Z = find_ranges(X, (0, 1, 2, 3, 3))(X)
    assert_allclose(np.ptp(Z[:, :3], axis=0), np.ptp(Z[:, 0]))
    assert_array_equal(Z[:, 3:], X[:, 3:])
    assert_allclose(Z[:, :3].var(axis=0).sum(), 3.0)
    one = np.column_stack([X[:, :3], np.full(300, 7.0)])
    assert_allclose(find_ranges(one, ())(one)[:, 3], 7.0)
    assert find_ranges(X[:, [2, 3]], ()) is None  # they are alike
    assert find_ranges(X[:, :1], ()) is None
    assert find_ranges(X, (0, 0, 1, 1, 1)) is None


def make_rare(n, seed=0, n_rare=20):
    """Two inputs that matter, and many that are rarely anything."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    rare = (rng.uniform(size=(n, n_rare)) < 0.04) * rng.uniform(0.5, 1.0, (n, n_rare))
    return np.hstack([X, rare]), (X[:, 0] * X[:, 1] > 0.0).astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = make_rare(100, n_rare=14)
    with pytest.MonkeyPatch.context() as patch:
        regress_alone(patch)
        try_few_kernels(patch)
        patch.setattr("skvbgp.gp.classes._few_places._N_DRAWS", 2)
        return VBGPClassifier(max_iter=2, random_state=0).fit(X, y)


def regress_alone(patch):
    """No kernel gets a likelihood of labels, which would take the shares of those in ranges."""
    patch.setattr("skvbgp.gp.classes._few_places._OVERLAP", 1e6)
    patch.setattr("skvbgp.gp.classes._search._LEAST_GAIN", 1e6)


def share_of_ranges(model):
    names = [name for name, _ in model.kernels_]
    return sum(model.kernel_posterior_[["ranges" in name for name in names]])


@pytest.mark.thorough
def test_rare_values_are_not_far_from_all_others(monkeypatch):
    """Where one length scale for each input is not tried, as with many inputs it does not help."""
    monkeypatch.setattr("skvbgp.gp.classes._few_places.N_FREED", 0)
    (X, y), (X_test, y_test) = make_rare(200), make_rare(300, seed=1)
    options = {"max_iter": 8, "random_state": 0}
    model = VBGPClassifier(**options).fit(X, y)
    assert share_of_ranges(model) > 0.5
    monkeypatch.setattr("skvbgp.gp.classes._few_places.find_ranges", lambda *_: None)
    before = VBGPClassifier(**options).fit(X, y)
    assert share_of_ranges(before) == 0.0
    losses = [log_loss(y_test, one.predict_proba(X_test)) for one in (model, before)]
    assert losses[0] < 0.9 * losses[1]


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.parametrize("name, value", [("_WORTH_RANGES", 1e6), ("n_neighbors", 20)])
@pytest.mark.every_nth("name", 2)
def test_where_units_stay_as_they_are(monkeypatch, name, value):
    """If no kernel gains so much by others, and where neighbours predict."""
    options = {"n_neighbors": value} if name == "n_neighbors" else {}
    if not options:
        monkeypatch.setattr(f"skvbgp.gp.classes._few_places.{name}", value)
    model = VBGPClassifier(**options, max_iter=2, random_state=0).fit(*make_rare(30))
    assert share_of_ranges(model) == 0.0


@pytest.mark.usefixtures("few_kernels")
def test_what_such_a_model_says_is_kept(fitted, monkeypatch):
    regress_alone(monkeypatch)
    X, y = make_rare(60, seed=2, n_rare=14)
    model = pickle.loads(pickle.dumps(fitted))
    assert share_of_ranges(model) > 0.0
    assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
    kernels = model.kernels_
    model.partial_fit(X[:5], y[:5])
    assert model.kernels_ == kernels
    p = model.predict_proba(np.where(np.arange(16) == 0, np.nan, X))
    assert_allclose(p.sum(axis=1), 1.0)


@pytest.mark.thorough
@pytest.mark.usefixtures("few_kernels")
def test_a_warm_start_keeps_the_units(fitted, monkeypatch):
    regress_alone(monkeypatch)
    again = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True)
    again.fit(*make_rare(100, n_rare=14))
    assert share_of_ranges(again) > 0.0


def test_length_scales_are_in_the_units_of_X(fitted):
    """Alike as shares of the ranges."""
    X, _ = make_rare(100, n_rare=14)
    for (name, kernel), one in zip(fitted.kernels_, fitted._state.found.trained, strict=True):
        if name.endswith("ranges"):
            shares = kernel.length_scale / np.ptp(X, axis=0)
            assert_allclose(shares, shares[0], rtol=1e-6)
            units = fitted._state.coordinates.scale / np.array(one.warp.stretch)
            assert_allclose(kernel.length_scale, one.kernel.length_scale * units)
            return
    raise AssertionError("no kernel is in units of ranges")


def test_units_stay_with_their_inputs_if_another_one_has_more_columns():
    model = make(RBF(1.3, isotropic=True).bind(2), RANGES)
    assert _rebind(model, 4, (0, 0, 0, 1)).warp.stretch == (1.0, 1.0, 1.0, 0.5)
    assert _rebind(model, 3, (0, 1, 1)).warp.stretch == (2.0, 1.0, 1.0)
