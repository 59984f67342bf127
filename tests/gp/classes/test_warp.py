"""Classes by kernels of warped inputs."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss

from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp._warp import Warp
from skvbgp.gp.classes._learner import _rebind
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._probit_process import ProbitProcess
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._votes import Votes
from skvbgp.gp.classes._warp import WarpedCovariance, find_warp
from skvbgp.kernels import RBF
from skvbgp.kernels._candidates import add_fading_lines
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.gp.cases import small_classifier as small
from tests.gp.searches import try_few_kernels
from tests.oracles import gp as oracle
from tests.oracles import gp_classes as oracle_classes

pytestmark = pytest.mark.usefixtures("quick_searches", "few_kernels")

#: Of the second of two inputs.
CENTRE, WIDTH = 0.4, 0.3
#: Its variance depends on the place.
KERNEL = add_fading_lines("", (1.5 * RBF([1.0, 2.0])).bind(2), 2)[1]


@pytest.fixture
def votes(rng):
    counts = np.eye(2)[rng.integers(2, size=14)]
    counts[:4] += rng.integers(0, 3, (4, 2))
    return Votes.of(np.exp(rng.standard_normal((14, 2))), counts * [1.0, 0.5])


@pytest.fixture
def warp(votes):
    vector = np.array([CENTRE, np.log(WIDTH)])
    return Warp.of(np.array([1]), vector, votes.X, np.ones(14))


def bend(votes, X=None):
    """Places, or rows, by the formula."""
    known = votes.X[:, 1]
    rows = known if X is None else np.append(known, X[:, 1])
    bent = np.arcsinh((rows - CENTRE) / WIDTH)
    bent = (bent - bent[:14].mean()) / bent[:14].std()
    return np.column_stack([(votes.X if X is None else X)[:, 0], bent[0 if X is None else 14 :]])


def make_regression(warp):
    return ClassProcess(Process(KERNEL, 0.2, np.inf), 2, warp=warp, link=Link(4.0, 0.7, 0.2))


def make_probit(warp):
    return ProbitProcess(Process(KERNEL, 0.3, np.inf), 2, warp=warp)


def test_labels_of_bent_places_are_regressed(votes, warp):
    frequencies = oracle_classes.find_frequencies(votes.counts)
    known = KERNEL(bend(votes)), votes.counts, frequencies, 0.2
    value = oracle_classes.measure_log_probability(*known, 4.0, 0.7, 0.2, units=[1.0, 0.5])
    assert_allclose(make_regression(warp).evidence(votes)[0], value, rtol=1e-6)


@pytest.mark.parametrize("make", [make_regression, make_probit])
def test_a_warped_model_is_that_of_bent_places(votes, warp, rng, make):
    model, straight = make(warp), make(None)
    bent = replace(votes, X=bend(votes))
    assert_allclose(model.evidence(votes)[0], straight.evidence(bent)[0], rtol=1e-10)
    assert_allclose(model.evidence(votes)[1], straight.evidence(bent)[1], rtol=1e-8)
    assert_allclose(model.log_evidence(votes), straight.log_evidence(bent), rtol=1e-10)
    for mine, its in zip(model.leave_out(votes), straight.leave_out(bent), strict=True):
        assert_allclose(mine, its, rtol=1e-8, atol=1e-12)
    X = np.exp(rng.standard_normal((5, 2)))
    moments = straight.factorise(bent).moments(bend(votes, X))
    for mine, its in zip(model.factorise(votes).moments(X), moments, strict=True):
        assert_allclose(mine, its, rtol=1e-8, atol=1e-12)
    near = straight.predict_from_neighbours(bent, bend(votes, X)[0])
    assert_allclose(model.predict_from_neighbours(votes, X[0]), near, rtol=1e-8)


def with_gaps(votes, rng):
    variance = rng.exponential(size=(14, 2)) * (rng.uniform(size=(14, 2)) < 0.4)
    return replace(votes, X=append_variances(votes.X, variance))


@pytest.mark.parametrize("make", [make_regression, make_probit])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.every_nth("gaps", 2)
def test_gradients(votes, warp, rng, make, gaps):
    model, votes = make(warp), with_gaps(votes, rng) if gaps else votes
    numeric = numerical_gradient(lambda x: model.with_vector(x).log_evidence(votes), model.vector)
    assert_allclose(model.evidence(votes)[1], numeric, rtol=1e-5, atol=1e-6)


def test_what_is_unknown_of_an_entry_is_stretched_by_the_slope(votes, warp, rng):
    rows = with_gaps(votes, rng).X
    step = 1e-6 * np.eye(2)[1]
    up, down = (bend(votes, rows[:, :2] + sign * step) for sign in (1.0, -1.0))
    slope = np.column_stack([np.ones(14), (up - down)[:, 1] / 2e-6])
    bent = append_variances(bend(votes), rows[:, 2:] * slope**2)
    covariance, straight = WarpedCovariance(KERNEL, 2, warp), UncertainCovariance(KERNEL, 2)
    assert_allclose(covariance(rows), straight(bent), rtol=1e-6)
    assert_allclose(covariance.diag(rows), straight.diag(bent), rtol=1e-6)
    assert_allclose(covariance.whole(rows), straight.whole(bent), rtol=1e-6)
    assert_allclose(covariance.lost(rows), straight.lost(bent), rtol=1e-6, atol=1e-9)


def test_inputs_are_bent_if_their_values_become_more_normal(rng):
    skewed, even = np.exp(rng.standard_normal(200)), rng.standard_normal(200)
    label = (rng.uniform(size=200) < 0.1).astype(float)
    X = np.column_stack([even, skewed, label, skewed**2, np.rint(skewed) > 0])
    warp = find_warp(X, ())
    assert_array_equal(warp.columns, [1, 3])
    W = warp(X)
    assert_array_equal(W[:, [0, 2, 4]], X[:, [0, 2, 4]])
    expected = oracle.warp(X[:, [1, 3]], warp.centre, warp.width, np.ones(200, dtype=int))
    assert_allclose(W[:, [1, 3]], expected, rtol=1e-10, atol=1e-12)
    assert_array_equal(find_warp(X, (0, 1, 1, 2, 3)).columns, [3])  # two encode one input
    assert find_warp(X[:, [0, 2]], ()) is None
    again = find_warp(np.repeat(X, rng.integers(1, 9, 200), axis=0), ())  # values count once
    for mine, its in ((again.centre, warp.centre), (again.width, warp.width)):
        assert_allclose(mine, its)


def make_skewed(n=160, seed=0):
    """Two skewed inputs, whose logarithms matter, and an even one that does not."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.exp(1.5 * rng.standard_normal((n, 2))), rng.standard_normal(n)])
    return X, (np.log(X[:, 0] * X[:, 1]) + 0.3 * rng.standard_normal(n) > 0.0).astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = make_skewed()
    with pytest.MonkeyPatch.context() as patch:
        try_few_kernels(patch)
        patch.setattr("skvbgp.gp.classes._few_places._N_DRAWS", 2)
        return VBGPClassifier(max_iter=3, random_state=0).fit(X[:60], y[:60])


def share_of_warped(model):
    names = [name for name, _ in model.kernels_]
    return sum(model.kernel_posterior_[["warped" in name for name in names]])


@pytest.mark.thorough
def test_skewed_inputs_are_warped(fitted, monkeypatch):
    X, y = make_skewed()
    assert share_of_warped(fitted) > 0.5
    assert_array_equal(np.isfinite(fitted.input_warp_[:, 1]), [True, True, False])
    monkeypatch.setattr("skvbgp.gp.classes._few_places.find_warp", lambda *_: None)
    straight = VBGPClassifier(max_iter=3, random_state=0).fit(X[:60], y[:60])
    assert_array_equal(straight.input_warp_, [[np.nan, np.inf]] * 3)
    losses = [log_loss(y[80:], m.predict_proba(X[80:])) for m in (fitted, straight)]
    assert losses[0] < 0.9 * losses[1]


def test_what_a_warped_model_says_is_kept(fitted):
    X, y = make_skewed()
    model = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(model.predict_proba(X[80:]), fitted.predict_proba(X[80:]))
    model.partial_fit(X[80:83], y[80:83])
    assert_array_equal(model.input_warp_, fitted.input_warp_)
    gaps = np.where(np.arange(3) == 0, np.nan, X[83:])
    p = model.predict_proba(gaps)
    assert_allclose(p.sum(axis=1), 1.0)
    assert log_loss(y[83:], p) > log_loss(y[83:], model.predict_proba(X[83:]))


def test_names_say_what_is_warped_whatever_the_likelihood(fitted):
    """Also where a warm start goes on from it as a regression."""
    found = fitted._state.found
    assert any(name.endswith("warped, probit") for name in found.names)
    listed = [(name, model) for name, model, _ in found.list_kernels()]
    names, models = zip(*(one for one in listed if one[0].endswith("probit")), strict=True)
    regressions = found._replace(names=names, trained=models).list_starts(anew=True)
    for name, model in [*listed, *regressions]:
        assert ("warped" in name) == isinstance(model.warp, Warp)


def test_length_scales_and_warps_are_in_the_units_of_X(fitted):
    X, y = make_skewed()
    units = np.array([100.0, 0.01, 3.0])
    scaled = VBGPClassifier(max_iter=3, random_state=0).fit(units * X[:60], y[:60])
    assert_allclose(scaled.input_warp_, fitted.input_warp_ * units[:, None], rtol=1e-6)
    scale = fitted._state.coordinates.scale
    for (_, kernel), (name, model, _) in zip(
        fitted.kernels_, fitted._state.found.list_kernels(), strict=True
    ):
        if name.endswith("by input, warped"):
            down, up = model.warp(np.array([[-1e-6], [1e-6]]) * np.ones(3))  # at the mean
            expected = model.kernel.length_scale * scale * 2e-6 / (up - down)
            assert_allclose(kernel.length_scale, expected, rtol=1e-6)
            return
    raise AssertionError("no kernel with a length scale for each input is warped")


@pytest.mark.parametrize("what", ["gaps", "kernel", "neighbours"])
def test_where_inputs_stay_as_they_are(what):
    X, y = make_skewed(40)
    options = {"kernel": RBF()} if what == "kernel" else {"kernel": "auto", "max_iter": 1}
    if what == "gaps":
        X[3, 1] = np.nan
    if what == "neighbours":
        options["n_neighbors"] = 20
    model = small(**options).fit(X, y)
    assert not any("warped" in name for name, _ in model.kernels_)
    assert_array_equal(model.input_warp_, [[np.nan, np.inf]] * 3)


@pytest.mark.parametrize("worth, tried", [(2.0, True), (1e6, False)])
@pytest.mark.every_nth("worth", 2)
def test_with_many_places_a_warp_has_to_be_worth_its_time(monkeypatch, worth, tried):
    monkeypatch.setattr("skvbgp.gp.classes._few_places._TRIAL_PLACES", 60)
    monkeypatch.setattr("skvbgp.gp.classes._few_places._WORTH_WARPING", worth)
    X, y = make_skewed(80)
    model = small("auto", max_iter=4).fit(X, y)
    assert any("warped" in name for name, _ in model.kernels_) == tried


def test_a_warp_stays_with_its_input_if_another_one_has_more_columns(warp):
    model = _rebind(make_regression(warp), 4, (0, 0, 0, 1))
    assert_array_equal(model.warp.columns, [3])
    rows = np.array([[1.0, 0.0, 0.0, 0.7], [0.0, 0.0, 1.0, 2.0]])
    assert_allclose(model.warp(rows)[:, 3], warp(rows[:, 2:])[:, 1])
    assert len(model.evidence(Votes.of(rows, np.eye(2)))[1]) == len(make_regression(warp).vector)
    category = _rebind(make_regression(warp), 4, (0, 1, 1, 1))  # it was a number before
    assert_array_equal(category.warp(rows), rows)
