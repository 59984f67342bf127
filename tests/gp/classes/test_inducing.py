"""Classes through inducing inputs, against dense matrices and what is left out one by one."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp._core.blockwise import in_tiles
from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp.classes import _many_places, _search, _shares
from skvbgp.gp.classes._inducing import InducingClasses
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._shares import Part
from skvbgp.gp.classes._start import start_class_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Matern
from skvbgp.kernels._uncertain import append_variances
from tests.gp.cases import small_classifier
from tests.gp.searches import make_class_search
from tests.oracles import gp_classes as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

UNITS = np.array([1.0, 0.5, 2.0])
PROCESS = ClassProcess(
    Process(Matern([1.0, 2.0], nu=1.5).bind(2), 0.2, np.inf), 2, link=Link(4.0, 0.7, 0.2)
)


@pytest.fixture(params=[False, True], ids=["", "gaps"])
def votes(request, rng):
    """Votes of single rows, up to seven of them at a place, some of which have gaps."""
    counts = np.eye(3)[rng.integers(3, size=40)] + rng.integers(0, 3, (40, 3)) * (
        np.arange(40)[:, None] < 12
    )
    X = rng.standard_normal((40, 2))
    missing = rng.random((40, 2)) < 0.3
    variance = np.where(missing, 0.5, 0.0) if request.param else None
    return Votes.of(append_variances(X, variance), counts * UNITS)


def tell(votes, m=9):
    return InducingClasses.start(PROCESS, votes.X[:m], 3).plus(votes)


def know(votes):
    """What the oracle has to know."""
    covariance = PROCESS.covariance
    noise = PROCESS.process.noise + covariance.lost(votes.X)
    return covariance, votes.X[:9], noise, oracle.find_frequencies(votes.counts)


def test_it_is_the_sparse_process_of_all_votes(votes, rng):
    places = np.vstack([votes.X[:5] + 0.1, rng.standard_normal((3, votes.X.shape[1])) ** 2])
    covariance, Z, noise, frequencies = know(votes)
    known = votes.X, votes.counts, frequencies, noise
    expected = oracle.predict_places_sparse(covariance, Z, *known, places)
    mean, variance = tell(votes).given(votes.log_frequencies).moments(places)
    assert_allclose(mean, expected[0], rtol=1e-5, atol=1e-6)
    assert_allclose(variance, expected[1], rtol=1e-5, atol=1e-6)


def test_far_away_nothing_is_known(votes):
    given = tell(votes).given(votes.log_frequencies)
    mean, variance = given.moments(np.full((1, 2), 1e3))
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(variance, 1.0)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.every_nth("share", 2)
def test_votes_are_left_out_in_closed_form(votes, share, rng):
    """Also those of places that are not among the known ones."""
    is_known = rng.random(40) < share
    start = InducingClasses.start(PROCESS, votes.X[:9], 3)
    given = start.plus(votes.part(is_known)).given(votes.log_frequencies)
    mean, variance = given.leave_out(votes, is_known)
    covariance, Z, noise, frequencies = know(votes)
    known = votes.counts, UNITS, frequencies, noise, is_known
    expected = oracle.leave_out_votes_sparse(covariance, Z, votes.X, *known)
    place, label, means, variances = (np.array(part) for part in zip(*expected, strict=True))
    assert_array_equal(votes.left_out.owner, place)
    assert_array_equal(votes.left_out.counts.nonzero()[1], label)
    assert_allclose(mean, means, rtol=1e-4, atol=1e-6)
    assert_allclose(variance - covariance.lost(votes.X)[place], variances, rtol=1e-4, atol=1e-6)


def test_a_place_left_out_is_as_if_it_had_not_been_told(votes):
    """To the digits that its sums have."""
    places = replace(votes, units=None)  # all of a place at a time
    given = tell(places).given(votes.log_frequencies)
    mean, variance = given.leave_out(places, np.ones(40, dtype=bool))
    start = InducingClasses.start(PROCESS, votes.X[:9], 3)
    for i in range(0, 40, 7):
        others = start.plus(votes.part(np.arange(40) != i)).given(votes.log_frequencies)
        expected, own = others.moments(votes.X[[i]])
        assert_allclose(mean[[i]], expected, rtol=1e-8, atol=1e-10)
        lost = PROCESS.covariance.lost(votes.X[[i]])
        assert_allclose(variance[[i]], own + lost, rtol=1e-8)


def test_votes_are_told_in_any_order(votes, rng):
    whole = tell(votes)
    told = InducingClasses.start(PROCESS, votes.X[:9], 3)
    for chunk in np.split(rng.permutation(40), [1, 13, 30]):
        told = told.plus(votes.part(chunk))
    assert_allclose(told.information, whole.information, rtol=1e-10, atol=1e-12)
    assert_allclose(told.shift, whole.shift, rtol=1e-10, atol=1e-12)


# -- the search ------------------------------------------------------------------------------------


def make_search():
    X, y = make_shells(90)
    search = make_class_search(Votes.of(X, np.eye(3)[y]), 4, 10, m=20)
    search.n_grouped = 90.0
    return search


def test_votes_that_are_left_out_are_not_inducing_inputs(monkeypatch):
    monkeypatch.setattr(_many_places, "_HELD_OUT", 30)
    monkeypatch.setattr(_many_places, "_MOST_KNOWN", 70)
    search = make_search()
    assert len(search.known) == 70
    assert not np.isin(search.known[:60], search.held_out).any()
    assert np.isin(search.known[60:], search.held_out).all()


def make_part(search, p):
    """What gives labels left out the probabilities p, and the others equal shares of the rest."""
    label, process = search.held.left_out.counts.argmax(axis=1), start_class_process(RBF(), 4)
    log_p = np.repeat(np.log(0.5 - 0.5 * p)[:, None], 3, axis=1)
    log_p[np.arange(90), label] = np.log(p)
    return Part("a", process, [process], np.ones(1), log_p, search.charge(process))


def make_inducing(search, p):
    part = make_part(search, p)
    votes = search.votes
    told = InducingClasses.start(part.trained, votes.X[:2], 3)
    return part._replace(processes=[told])


@pytest.mark.parametrize(("n_worse", "kept"), [(4, False), (0, True)])
def test_a_gain_has_to_be_larger_than_its_standard_error(n_worse, kept):
    search = make_search()
    near, p = make_part(search, np.full(90, 0.5)), np.full(90, 0.55)
    p[:n_worse] = 0.01
    other = make_inducing(search, p)
    after, before = search.mix([near, other]), search.mix([near])
    gain = (after.log_p - near.log_p)[search.held.left_out.counts > 0.0]
    assert len(after.found.names) == 2
    assert gain.mean() > 0.0
    assert (gain.mean() > gain.std() / np.sqrt(90)) == kept
    assert search._prefer(after, before) is (after if kept else before)


def test_without_a_share_they_change_nothing(monkeypatch):
    """Neither do they in the prior of the others' shares."""
    monkeypatch.setattr(_search, "_LEAST_GAIN", -np.inf)
    search = make_search()
    p = np.where(np.arange(90) < 60, 0.8, 0.3)
    near = [make_part(search, p), make_part(search, p[::-1])]
    other = make_inducing(search, np.full(90, 0.1))
    before = search.mix(near)
    assert search._prefer(search.mix([*near, other]), before) is before


def test_hyperparameters_are_charged_to_the_random_places():
    search = make_search()
    search.n_grouped = 50.0
    process = start_class_process(RBF([1.0] * 4), 4)
    assert_allclose(search.charge(process), 5.0 / 50.0 + 3.0 / 90.0)


# -- the estimator ---------------------------------------------------------------------------------


def make_shells(n=90, d=4, seed=0):
    """Three classes by distance from the centre: no row is near another of the outer ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.digitize(np.sum(X**2, axis=1), np.array([0.6, 1.3]) * d)
    return X * np.arange(1, d + 1), y


def small(**parameters):
    kernel = RBF([2.0, 4.0, 6.0, 8.0])
    return small_classifier(
        kernel, **{"n_neighbors": 10, "n_inducing": 30, "max_iter": 1, **parameters}
    )


@pytest.fixture
def always(monkeypatch):
    """Inducing inputs whether they gain or not."""
    monkeypatch.setattr(_search, "_LEAST_GAIN", -np.inf)
    monkeypatch.setattr(_shares, "_LEAST_SHARE", 0.0)


@pytest.mark.usefixtures("always")
def test_predictions_are_those_of_both(rng):
    X, y = make_shells()
    model, places = small().fit(X, y), X[:6] + 0.1
    (name, _), (other, _) = model.kernels_
    assert other == f"{name}, inducing"
    assert model.n_inducing_ == 30
    found, lf = model._state.found, np.log(model.class_prior_)
    scaled = model._state.coordinates.scaled(places)
    (told,), near = found.inducing, replace(model._state.posterior, inducing=())
    through = told.process.link.log_probabilities(*in_tiles(told.given(lf).moments, scaled), lf)
    alone = replace(near, belief=np.ones(1)).decisions(places)
    share = model.kernel_posterior_
    expected = share[0] * np.exp(alone) + share[1] * np.exp(through)
    assert_allclose(model.predict_proba(places), expected, rtol=1e-9)


@pytest.mark.usefixtures("always")
def test_kernel_and_link_are_their_own(monkeypatch):
    """Of random places, here all of them, and of the votes that are left out."""
    monkeypatch.setattr("skvbgp.gp.classes._link._MAX_ITER", 50)
    X, y = make_shells()
    state = small().fit(X, y)._state
    (told,), (near,) = state.found.inducing, state.found.processes
    votes = Votes.of(state.coordinates.scaled(X), np.eye(3)[y])
    known = votes.left_out.counts, votes.log_frequencies
    moments = told.given(votes.log_frequencies).leave_out(votes, np.ones(90, dtype=bool))
    link = told.process.link
    assert_allclose(link.learn(*moments, *known).vector, link.vector, atol=0.02)
    trained = state.found.trained[1]
    assert trained.process is told.process.process
    assert trained.process.kernel != near.process.kernel


@pytest.mark.thorough
@pytest.mark.usefixtures("always")
def test_the_kernel_is_trained_on_all_votes():
    X, y = make_shells()
    state = small(max_iter=15).fit(X, y)._state
    votes, trained = Votes.of(state.coordinates.scaled(X), np.eye(3)[y]), state.found.trained[1]

    def measure(process):
        return process.log_evidence(votes) + process.log_prior()[0]

    best = measure(trained)
    for step in 0.1 * np.eye(len(trained.vector)):
        assert measure(trained.with_vector(trained.vector + step)) < best + 0.02
        assert measure(trained.with_vector(trained.vector - step)) < best + 0.02


@pytest.mark.usefixtures("always")
def test_a_row_alone_and_on_workers():
    X, y = make_shells(50)
    model = small().fit(X, y)
    p = model.predict_proba(X + 0.1)
    rows = np.vstack([model.predict_proba(x[None] + 0.1) for x in X[:5]])
    assert_allclose(rows, p[:5], rtol=1e-9)
    assert_array_equal(model.set_params(n_jobs=1).predict_proba(X + 0.1), p)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict_proba(X + 0.1), p)
    assert_array_equal(clone(model).fit(X, y).predict_proba(X + 0.1), p)


@pytest.mark.thorough
def test_they_share_where_they_gain_and_only_there(rng, monkeypatch):
    X, y = make_shells(160)
    model = small(max_iter=5).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(_search, "_LEAST_GAIN", np.inf)
        near = small(n_inducing=0, max_iter=5).fit(X, y)
    T, t = make_shells(400, seed=1)
    loss, loss_near = (
        -np.mean(np.log(m.predict_proba(T)[np.arange(400), t])) for m in (model, near)
    )
    assert model.n_inducing_ == 30
    assert loss < loss_near - 0.02
    assert model.log_predictive_probability_ > near.log_predictive_probability_ + 0.02
    noise = rng.permutation(y)
    model, near = (small(n_inducing=m, max_iter=5).fit(X, noise) for m in (30, None))
    assert model.n_inducing_ == 0
    assert_array_equal(model.predict_proba(T), near.predict_proba(T))


def test_there_are_none_where_all_rows_predict():
    X, y = make_shells(40)
    model = small(n_neighbors=40).fit(X, y)
    assert model.n_inducing_ == 0


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "class_weight",
    [None, "balanced", {2: 3.0}],
    ids=str,
)
@pytest.mark.thorough
def test_new_rows_are_known_at_once_in_any_order(class_weight, rng):
    X, y = make_shells(140)
    weights = rng.uniform(0.5, 2.0, 140)
    first, later = np.arange(80), 80 + rng.permutation(50)

    known = small(class_weight=class_weight)
    known.partial_fit(X[first], y[first], classes=[0, 1, 2], sample_weight=weights[first])

    def stream(*chunks):
        model = pickle.loads(pickle.dumps(known))
        for chunk in chunks:
            model.partial_fit(X[chunk], y[chunk], sample_weight=weights[chunk])
        return model

    model = stream(*np.split(later, [1, 30]))
    assert_allclose(stream(later[::-1]).predict_proba(X), model.predict_proba(X), rtol=1e-7)
    state = model._state
    (told,) = state.found.inducing
    counts = np.eye(3)[y] * weights[:, None]
    known = Votes.of(state.coordinates.scaled(X[:130]), counts[:130])
    whole = InducingClasses.start(told.process, told.inducing.Z, 3).plus(known)
    (given,) = state.posterior.inducing
    expected = whole.given(known.log_frequencies)
    scaled = state.coordinates.scaled(X)
    for found, moments in zip(given.moments(scaled), expected.moments(scaled), strict=True):
        assert_allclose(found, moments, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("always")
def test_weights_are_repetitions(rng):
    X, y = make_shells(60)
    times = rng.integers(0, 4, 60)
    weighted = small().fit(X, y, sample_weight=times)
    repeated = small().fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.n_inducing_ == repeated.n_inducing_ == 30
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)


@pytest.mark.usefixtures("always")
@pytest.mark.thorough
def test_missing_entries(rng):
    X, y = make_shells(120)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = small().fit(X[:80], y[:80])
    model.partial_fit(X[80:], y[80:])
    assert model.n_inducing_ == 30
    state = model._state
    (told,), (given,) = state.found.inducing, state.posterior.inducing
    places, std = state.posterior.votes.X[:, :4], state.posterior.votes.X[:, 4:]
    scale = state.coordinates.scale
    known = np.hstack([state.coordinates.scaled(places), (std / scale) ** 2])
    assert np.count_nonzero(std) == np.count_nonzero(np.isnan(X))
    covariance, noise = told.process.covariance, told.process.process.noise
    expected = oracle.predict_places_sparse(
        covariance,
        told.inducing.Z,
        known,
        state.rows.y,
        model.class_prior_,
        noise + covariance.lost(known),
        known,
    )
    for found, moments in zip(given.moments(known), expected, strict=True):
        assert_allclose(found, moments, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("always")
def test_a_call_that_fails_leaves_the_estimator_as_it_was():
    X, y = make_shells(60)
    model = small().fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError):
        model.partial_fit(np.full((1, 4), 1e300), [0])
    assert_array_equal(model.predict_proba(X), before)


@pytest.mark.usefixtures("always")
@pytest.mark.thorough
def test_a_new_class_and_a_warm_start_learn_again():
    X, y = make_shells(50)
    first = np.flatnonzero(y < 2)
    model = small().partial_fit(X[first], y[first], classes=[0, 1, 2])
    place = np.flatnonzero(y == 2)[:1]
    model.partial_fit(X[place], y[place])
    expected = small().fit(X[[*first, *place]], y[[*first, *place]])
    assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    warm = small(warm_start=True).fit(X, y)
    names, n_iter = [name for name, _ in warm.kernels_], warm.n_iter_
    warm.fit(X, y)
    assert [name for name, _ in warm.kernels_] == names
    assert warm.n_iter_ == n_iter
    kept = warm.set_params(n_inducing="auto", learn_hyperparameters=False).fit(X, y)
    assert [name for name, _ in kept.kernels_] == names[:1]


@pytest.mark.parametrize(
    "obstacle", [{"forgetting": 50}, {"learn_hyperparameters": False}], ids=str
)
@pytest.mark.every_nth("obstacle", 2)
def test_what_they_do_not_go_with(obstacle):
    X, y = make_shells(60)
    (name,) = obstacle
    with pytest.raises(ValueError, match=f"n_inducing=30.*{name}"):
        small(**obstacle).fit(X, y)
    assert small(n_inducing="auto", **obstacle).fit(X, y).n_inducing_ == 0


@pytest.mark.thorough
def test_many_rows_have_them_by_default(monkeypatch):
    monkeypatch.setattr("skvbgp.gp.classes._learner._EXACT_PLACES", 100)
    monkeypatch.setattr("skvbgp.gp.classes._learner._NEIGHBOURS", 10)
    monkeypatch.setattr("skvbgp.gp.classes._learner._N_INDUCING", 40)
    X, y = make_shells(200)
    assert VBGPClassifier(max_iter=5, random_state=0).fit(X, y).n_inducing_ == 40
    assert VBGPClassifier(max_iter=5, random_state=0).fit(X[:100], y[:100]).n_inducing_ == 0
