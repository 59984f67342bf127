"""Likelihoods of labels through inducing inputs, against expectation propagation vote by vote."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import log_loss

from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp.classes import _inducing_labels, _learner, _many_places, _search, _shares
from skvbgp.gp.classes._inducing_labels import InducingLabels
from skvbgp.gp.classes._probit_process import ProbitProcess
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._search import ClassSearch
from skvbgp.gp.classes._shares import Found, Part
from skvbgp.gp.classes._start import (
    make_class_kernels,
    start_alike_process,
    start_class_process,
)
from skvbgp.gp.classes._versus_rest import VersusRest
from skvbgp.gp.classes._votes import Votes, pair_votes
from skvbgp.kernels import RBF
from skvbgp.kernels._uncertain import append_variances
from tests.gp.searches import make_class_search
from tests.oracles import gp_classes as oracle

PROCESS = Process((1.5 * RBF([1.0, 2.0])).bind(2), 0.3, np.inf)
M = 6  # inducing inputs
LABELS = "SE, by input, alike, probit, inducing"


@pytest.fixture(autouse=True)
def converged(monkeypatch):
    """Single that are matched to the end."""
    monkeypatch.setattr(_inducing_labels, "_TOL", 1e-11)
    monkeypatch.setattr(_inducing_labels, "_MAX_ROUNDS", 500)


@pytest.fixture(
    params=[
        (2, False),
        (3, True),
        pytest.param((2, True), marks=pytest.mark.thorough),
        pytest.param((3, False), marks=pytest.mark.thorough),
    ],
    ids=["2", "3-gaps", "2-gaps", "3"],
)
def case(request):
    """How many classes there are, and whether entries are missing."""
    return request.param


@pytest.fixture
def process(case):
    return (ProbitProcess if case[0] == 2 else VersusRest)(PROCESS, 2)


@pytest.fixture
def votes(case, rng, process):
    """Several votes at some places, of two or three classes; one of the latter is rare."""
    K = 2 if isinstance(process, ProbitProcess) else 3
    X = rng.standard_normal((14, 2))
    counts = np.eye(K, dtype=int)[rng.integers(K, size=14)]
    counts[:4] += rng.integers(0, 3, (4, K))
    variance = rng.exponential(size=X.shape) * (rng.random(X.shape) < 0.3)
    return Votes.of(append_variances(X, variance if case[1] else None), counts)


def list_functions(votes):
    """Votes (n, 2) and frequency of each function."""
    frequencies = oracle.find_frequencies(votes.counts)
    if len(frequencies) == 2:
        return [(votes.counts, frequencies[1])]
    return [(pair_votes(votes.counts, c).astype(int), p) for c, p in enumerate(frequencies)]


def know(process, votes, places):
    """Covariances Q of all rows, the known ones first, a priori means per score, and variances."""
    X, covariance = np.vstack([votes.X, places]), process.covariance
    Q, rest = oracle.measure_sparse_prior(covariance, votes.X[:M], X)
    lost = covariance.lost(X)
    unit = np.sqrt(process.process.noise + PROCESS.kernel.diag(X[:, :2]))
    return Q, unit, rest, process.process.noise + lost


def find_probabilities(scores):
    """From the scores (n, F) of the functions."""
    p = stats.norm.cdf(scores)
    return np.hstack([1.0 - p, p]) if p.shape[1] == 1 else p / p.sum(axis=1, keepdims=True)


def predict(process, moments, votes):
    return np.exp(process.link.log_probabilities(*moments, votes.log_frequencies))


def test_it_is_expectation_propagation_through_inducing_inputs(process, votes, rng):
    places = np.vstack([votes.X[:3], votes.X[3:6] + 0.3])
    Q, unit, rest, noise = know(process, votes, places)
    n, scores = len(votes), []
    for counts, frequency in list_functions(votes):
        mean = stats.norm.ppf(frequency) * unit
        known = Q[:n, :n], mean[:n], counts, (rest + noise)[:n]
        place, _, *sites = oracle.propagate_expectations(*known)
        f, S = oracle.condition_on_sites(Q, mean, place, *sites)
        scores.append((f / np.sqrt(np.diagonal(S) + rest + noise))[n:])
    told, _ = InducingLabels.learn(process, votes.X[:M], votes)
    mean, variance = told.given(votes.log_frequencies).moments(places)
    moments = mean, variance + process.covariance.lost(places)
    expected = find_probabilities(np.column_stack(scores))
    assert_allclose(predict(process, moments, votes), expected, rtol=1e-6)


def test_votes_are_left_out_by_their_sites(process, votes):
    """And a place that is not known has none."""
    is_known = np.arange(len(votes)) % 3 > 0
    told, matched = InducingLabels.learn(process, votes.X[:M], votes.part(is_known))
    place = np.where(is_known, np.cumsum(is_known) - 1, -1)
    own = [sites.take(place) for sites in matched]
    moments = told.given(votes.log_frequencies).leave_out(votes, own)
    p = predict(process, moments, votes)
    assert_allclose(p, leave_out(process, votes, votes.X[:M], is_known), rtol=1e-5)


def leave_out(process, votes, Z, is_known):
    """Probabilities of the classes for each vote, whose own site is taken away."""
    Q, rest = oracle.measure_sparse_prior(process.covariance, Z, votes.X)
    noise = process.process.noise + process.covariance.lost(votes.X)
    unit = np.sqrt(process.process.noise + PROCESS.kernel.diag(votes.X[:, :2]))
    propagated = []
    for counts, frequency in list_functions(votes):
        mean, told_of = stats.norm.ppf(frequency) * unit, counts * is_known[:, None]
        sites = oracle.propagate_expectations(Q, mean, told_of, rest + noise)
        propagated.append((mean, sites))
    out, p = votes.left_out, []
    for i, b in zip(out.owner, out.counts.argmax(axis=1), strict=True):
        scores = []
        for c, (mean, (place, label, tau, nu)) in enumerate(propagated):
            told_as = int(b) if len(propagated) == 1 else int(b == c)
            kept = np.ones(len(place), dtype=bool)
            kept[np.flatnonzero((place == i) & (label == told_as))[:1]] = False
            f, S = oracle.condition_on_sites(Q, mean, place[kept], tau[kept], nu[kept])
            scores.append(f[i] / np.sqrt(S[i, i] + rest[i] + noise[i]))
        p.append(find_probabilities(np.array([scores]))[0])
    return p


def test_with_all_places_for_inducing_inputs_it_is_the_process_itself(process, votes, rng):
    places = votes.X[:5] + 0.2
    told, matched = InducingLabels.learn(process, votes.X, votes)
    given, exact = told.given(votes.log_frequencies), process.factorise(votes)
    for found, moments in zip(given.moments(places), exact.moments(places), strict=True):
        assert_allclose(found, moments, rtol=1e-4, atol=1e-4)
    for found, moments in zip(
        given.leave_out(votes, matched), process.leave_out(votes), strict=True
    ):
        assert_allclose(found, moments, rtol=1e-3, atol=1e-3)


def test_new_votes_have_the_sites_of_what_was_known(process, votes):
    """And frequencies may have become others since."""
    places, frequencies = (
        votes.X,
        np.array([[0.2, 0.8], [0.1, 0.3, 0.6]][votes.counts.shape[1] - 2]),
    )
    begun, _ = InducingLabels.learn(process, places[:M], votes.part(np.arange(9)))
    given = begun.plus(votes.part(np.arange(9, 14))).given(np.log(frequencies))
    Q, unit, rest, noise = know(process, votes, places[:0])
    t, scores = rest + noise, []
    later = frequencies[-len(list_functions(votes)) :]
    for (counts, frequency), new in zip(list_functions(votes), later, strict=True):
        mean = stats.norm.ppf(frequency) * unit
        known = Q[:9, :9], mean[:9], counts[:9], t[:9]
        place, _, tau, nu = oracle.propagate_expectations(*known)
        f, S = oracle.condition_on_sites(Q, mean, place, tau, nu)
        for i, b in zip(*np.nonzero(counts), strict=True):
            if i >= 9:
                site = oracle.match_site(f[i], S[i, i], b, t[i])
                more = np.repeat([[i, *site]], counts[i, b], axis=0)
                place, tau, nu = np.hstack([[place, tau, nu], more.T])
        f, S = oracle.condition_on_sites(Q, stats.norm.ppf(new) * unit, place.astype(int), tau, nu)
        scores.append(f / np.sqrt(np.diagonal(S) + t))
    mean, variance = given.moments(places)
    moments = mean, variance + process.covariance.lost(places)
    expected = find_probabilities(np.column_stack(scores))
    assert_allclose(predict(process, moments, votes), expected, rtol=1e-5)


def test_new_votes_are_told_in_any_order(process, votes, monkeypatch):
    monkeypatch.setattr(_inducing_labels, "_TILE_PLACES", 4)
    begun, _ = InducingLabels.learn(process, votes.X[:M], votes.part(np.arange(4)))
    whole, told = begun.plus(votes.part(np.arange(4, 14))), begun
    for chunk in np.split(np.arange(4, 14)[::-1], [1, 3]):
        told = told.plus(votes.part(chunk))
    for one, other in zip(whole.said, told.said, strict=True):
        for a, b in zip(one, other, strict=True):
            assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_far_away_only_the_frequencies_are_known(process, votes):
    told, _ = InducingLabels.learn(process, votes.X[:M], votes)
    far = np.full((1, votes.X.shape[1]), 1e3)
    far[:, 2:] = 0.0
    p = predict(process, told.given(votes.log_frequencies).moments(far), votes)
    assert_allclose(p, np.exp(votes.log_frequencies)[None], rtol=1e-9)


def test_a_place_that_is_far_from_all_inducing_inputs_says_nothing(process, rng):
    """Its votes are independent of everything else."""
    K = 2 if isinstance(process, ProbitProcess) else 3
    X = np.vstack([rng.standard_normal((9, 2)), [[1e3, 1e3]]])
    votes = Votes.of(X, np.eye(K)[np.arange(10) % K] + (np.arange(10) == 9)[:, None])
    told, _ = InducingLabels.learn(process, X[:M], votes)
    near, _ = InducingLabels.learn(process, X[:M], votes.part(np.arange(9)))
    for found in (told, near.plus(votes.part([9]))):
        for one, other in zip(found.said, near.said, strict=True):
            for a, b in zip(one, other, strict=True):
                assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_what_is_left_without_the_votes_of_a_place_is_the_prior():
    """However many they were: rounding leaves no more than that, and not less than nothing."""
    process = replace(PROCESS, noise=1e-4)
    votes = replace(Votes.of(np.zeros((1, 2)), np.full((1, 2), 1e6)), units=None)
    told, matched = InducingLabels.learn(ProbitProcess(process, 2), votes.X, votes)
    mean, variance = told.given(votes.log_frequencies).leave_out(votes, matched)
    assert_allclose(mean, 0.0, atol=1e-3)
    assert 0.0 < variance[0] <= 1.5 * (1.0 + 1e-6)


@pytest.mark.parametrize("step", [0.5, 1.0])
@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.every_nth("step", 2)
def test_matching_ends_near_the_end(monkeypatch, step, scale, rng):
    """Also where whole moves go too far, and where scores are large."""
    X = rng.standard_normal((300, 2))
    votes = Votes.of(X, np.eye(2)[(X[:, 0] > 0.0) * 1])
    process = ProbitProcess(Process(RBF([scale, scale]).bind(2), 1e-3, np.inf), 2)
    end, _ = InducingLabels.learn(process, X[:20], votes)
    monkeypatch.setattr(_inducing_labels, "_TOL", 4e-2)
    monkeypatch.setattr(_inducing_labels, "_MAX_ROUNDS", 50)
    monkeypatch.setattr(_inducing_labels, "_STEP", step)
    found, _ = InducingLabels.learn(process, X[:20], votes)
    scores = []
    for told in (end, found):
        mean, variance = told.given(votes.log_frequencies).moments(X)
        scores.append(mean[:, 1] / np.sqrt(1e-3 + variance))
    moves = np.abs(scores[1] - scores[0]) / np.maximum(np.abs(scores[0]) / 10.0, 1.0)
    assert np.sqrt(np.mean(moves**2)) < 0.3


def test_where_whole_moves_go_too_far_they_become_less(monkeypatch, rng):
    """Else these would not come to an end."""
    X, rounds, move = rng.standard_normal((400, 2)), [], _inducing_labels._move
    monkeypatch.setattr(_inducing_labels, "_TOL", 4e-2)
    monkeypatch.setattr(_inducing_labels, "_STEP", 1.0)
    monkeypatch.setattr(_inducing_labels, "_move", lambda *given: rounds.append(1) or move(*given))
    process = ProbitProcess(Process(RBF([1.0, 1.0]).bind(2), 1e-3, np.inf), 2)
    InducingLabels.learn(process, X[:30], Votes.of(X, np.eye(2)[(X[:, 0] > 0.0) * 1]))
    assert len(rounds) < 30


def test_the_power_is_the_one_that_votes_left_out_ask_for(process, votes):
    """Those of two classes as well: frequencies stay what they are."""
    lf, counts = votes.log_frequencies, votes.left_out.counts
    mean, variance = process.leave_out(votes)
    link = process.link.learn(mean, variance, counts, lf)

    def measure(power):
        p = np.exp(replace(link, power=power).log_probabilities(mean, variance, lf))
        plain = np.exp(process.link.log_probabilities(mean, variance, lf))
        expected = np.exp(lf) * (plain / np.exp(lf)) ** power
        assert_allclose(p, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
        return np.vdot(counts, np.log(p)) - 0.5 * np.log(power) ** 2

    for factor in (0.9, 1.1):
        assert measure(link.power) > measure(factor * link.power)
    own = np.full((1, 2), 1e3)
    if votes.X.shape[1] == 4:
        own = np.append(own, [[0.0, 0.0]], axis=1)
    far = link.log_probabilities(*process.factorise(votes).moments(own), lf)
    assert_allclose(far[0], lf)


# -- the search ------------------------------------------------------------------------------------


def make_search(X, counts):
    return make_class_search(Votes.of(X, counts * 1.0), X.shape[1], 10, m=20)


def make_stripes(n, K=2, d=2, seed=0):
    """Classes with sharp borders."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d))
    return X, np.digitize(X[:, 0], np.linspace(-0.3, 0.3, K + 1)[1:-1])


@pytest.mark.parametrize(
    ("case", "is_tried"),
    [
        ("two classes", True),
        ("three classes", True),
        ("no inducing inputs", False),
        ("one input", False),
        ("too many classes", False),
        ("weights that are not whole", False),
        ("two classes, all rows twice", True),
        ("three classes, all rows twice", False),
        ("a kernel of the user's", False),
    ],
)
@pytest.mark.usefixtures("quick_searches")
def test_when_one_is_tried(case, is_tried, monkeypatch):
    monkeypatch.setattr(_search, "_MOST_CLASSES", 3)
    K = 3 if "three" in case else 4 if "many" in case else 2
    X, y = make_stripes(30, K, d=1 if case == "one input" else 2)
    weight = {"weights that are not whole": 1.5}.get(case, 2.0 if "twice" in case else 1.0)
    counts = np.eye(K)[y] * weight
    if weight == 1.5:
        counts[0] *= 1.1
    search = make_class_search(
        Votes.of(X, counts), X.shape[1], 10, m=0 if case == "no inducing inputs" else 20
    )
    tried = []
    monkeypatch.setattr(search, "_match", tried.append)
    monkeypatch.setattr(search, "mix", lambda parts: None if None in parts else mix(parts))
    monkeypatch.setattr(search, "gains", lambda *_: False)
    mix = type(search).mix.__get__(search)
    kernels = make_class_kernels(2)[:1]
    starts = [(name, start_class_process(kernel, X.shape[1])) for name, kernel in kernels]
    search.run(starts, grows=case != "a kernel of the user's")
    assert bool(tried) == is_tried


def test_some_votes_that_judge_are_not_told(process, monkeypatch, rng):
    monkeypatch.setattr(_many_places, "_HELD_OUT", 20)
    monkeypatch.setattr(_many_places, "_MOST_KNOWN", 24)
    K = 2 if isinstance(process, ProbitProcess) else 3
    X, y = make_stripes(36, K)
    search = make_class_search(Votes.of(X, np.eye(K, dtype=int)[y]), 2, 10, m=5)
    part = search._match(SimpleNamespace(name="a", process=process))
    is_known = np.isin(np.arange(36), search.known)
    expected = np.array(leave_out(process, search.votes, X[search.known[:5]], is_known))
    (told,) = part.processes
    frequencies = oracle.find_frequencies(search.votes.counts)
    expected = frequencies * (expected / frequencies) ** told.power
    expected /= expected.sum(axis=1, keepdims=True)
    assert 0 < np.isin(search.held_out, search.known).sum() < 20
    assert_allclose(np.exp(part.log_p), expected[search.held_out], rtol=1e-4)
    assert_allclose(part.charge, 1.0 / 20.0)
    assert part.name == "a, inducing"


def test_where_length_scales_start():
    """At the geometric mean of those of regressions with one for each input."""
    X, y = make_stripes(60)
    search = make_search(X, np.eye(2)[y])
    models = [start_class_process(RBF(scales), 2) for scales in ([1.0, 4.0], [4.0, 1.0])]
    trials = [SimpleNamespace(process=model) for model in models]
    assert_allclose(search.start_labels(trials).process.kernel.length_scale, [2.0, 2.0])
    assert_allclose(search.start_labels(trials[:1]).process.kernel.length_scale, [1.0, 4.0])


@pytest.mark.parametrize("learns", [True, False])
def test_what_a_fit_goes_on_from(learns):
    """Without learning, from what near rows predict with, if there is anything else."""
    regression, label = start_class_process(RBF([1.0, 1.0]), 2), start_alike_process(2, (), 2)
    models = {"A, by input": regression, LABELS: label}
    for names in (list(models), [LABELS]):
        found = Found(names, [models[name] for name in names], *[()] * 3, None, None, 0.0)
        starts = found.list_starts(anew=learns)
        first = ["A, by input"][: len(names) - 1]
        own = ["SE, by input"] if learns else [LABELS.removesuffix(", inducing")]
        assert [name for name, _ in starts] == first + own * (learns or not first)


@pytest.mark.parametrize("gains", [[False], [True, False], [True, True]])
@pytest.mark.every_nth("gains", 3)
@pytest.mark.usefixtures("quick_searches")
def test_where_it_gains_it_learns_from_more_rows(gains, monkeypatch):
    """Its length scales start where regressions have theirs, and then where they were."""
    monkeypatch.setattr(_many_places, "_LABELLED", ((12, 2), (24, 2)))
    X, y = make_stripes(40)
    search = make_search(X, np.eye(2)[y])
    fit_models, tried, told = type(search).fit.__get__(search), [], []
    monkeypatch.setattr(
        search,
        "fit",
        lambda starts, *given: tried.append((starts, fit_models(starts, *given))) or tried[-1][1],
    )
    answers = iter([False, *gains])  # the first one is about kernels through inducing inputs
    monkeypatch.setattr(search, "gains", lambda after, _: told.append(after) or next(answers))
    kernels = make_class_kernels(2)[:2]
    starts = [(name, start_class_process(kernel, 2)) for name, kernel in kernels]
    found = search.run(starts, grows=True)
    freed = [one.process.vector[:2] for one in search.trials if one.process.shared_scale]
    labels = [pair for pair in tried if pair[0][0][0] in LABELS]
    ((_, first),) = labels[0][0]
    assert len(labels) == len(gains)
    assert_allclose(first.vector[:2], np.mean(freed, axis=0))
    if len(gains) == 2:
        ((_, second),), (trial,) = labels[1][0], labels[0][1]
        assert second is trial.process
    kept = sum(gains)
    if kept:
        known = search.held.left_out.counts, search.votes.log_frequencies
        assert found == told[kept].calibrate(*known).found
    else:
        assert LABELS not in found.names
        assert found.power == 1.0


@pytest.mark.usefixtures("quick_searches")
def test_it_is_trained_on_some_rows_that_count_once(monkeypatch):
    monkeypatch.setattr(_many_places, "_LABELLED", ((20, 2),))
    X, y = make_stripes(40)
    search = make_class_search(Votes.of(X, 3.0 * np.eye(2)[y]), 2, 10, m=20)
    kernels, groups = make_class_kernels(2)[:1], []
    fit_models = type(search).fit.__get__(search)
    monkeypatch.setattr(search, "fit", lambda *given: groups.append(given[1]) or fit_models(*given))
    search.run([(name, start_class_process(kernel, 2)) for name, kernel in kernels], grows=True)
    ((told,),) = groups[-1]
    assert_array_equal(told.X, X[np.sort(search.known[:20])])
    assert_array_equal(told.counts, np.eye(2)[y][np.sort(search.known[:20])])


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("gains", 2)
def test_votes_left_out_have_to_gain(gains, monkeypatch):
    X, y = make_stripes(30)
    search = make_search(X, np.eye(2)[y])
    kernels = make_class_kernels(2)[:1]
    starts = [(name, start_class_process(kernel, 2)) for name, kernel in kernels]
    monkeypatch.setattr(search, "gains", lambda *_: gains)
    monkeypatch.setattr(_shares, "_LEAST_SHARE", 0.0)
    found = search.run(starts, grows=True)
    assert (LABELS in found.names) == gains


def test_all_that_share_together_have_a_power(rng):
    """That of a mixture, in predictions as where it was learned."""
    X, y = make_stripes(60, 3)
    search = make_search(X, np.eye(3)[y])
    log_p = [np.log(rng.dirichlet(np.ones(3), 60)) for _ in range(2)]
    process = start_class_process(RBF(), 2)
    mixture = search.mix([Part("a", process, [process], np.ones(1), one, 0.0) for one in log_p])
    lf = search.votes.log_frequencies
    found, powered = mixture.calibrate(search.held.left_out.counts, lf)
    expected = np.exp(lf) * np.exp(mixture.log_p - lf) ** found.power
    expected /= expected.sum(axis=1, keepdims=True)
    assert found.power != 1.0
    assert_allclose(np.exp(powered), expected, rtol=1e-9)
    assert_allclose(found.score, np.mean(np.log(expected[np.arange(60), y])))


# -- the estimator ---------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch, few_kernels):
    """Neighbours and inducing inputs of few rows, which share whether they gain or not."""
    monkeypatch.setattr(_learner, "_EXACT_PLACES", 25)
    monkeypatch.setattr(_learner, "_NEIGHBOURS", 10)
    monkeypatch.setattr(_learner, "_N_INDUCING", 15)
    monkeypatch.setattr(_many_places, "_LABELLED", ((20, 2), (40, 2)))
    monkeypatch.setattr(ClassSearch, "gains", lambda *_: True)
    monkeypatch.setattr(_shares, "_LEAST_SHARE", 0.0)


def fit(X, y, **parameters):
    return VBGPClassifier(**{"max_iter": 3, "random_state": 0, **parameters}).fit(X, y)


def find(model):
    """What votes with a likelihood of labels say."""
    (told,) = [one for one in model._state.found.inducing if isinstance(one, InducingLabels)]
    return told


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_a_row_alone_on_workers_and_pickled():
    X, y = make_stripes(36, 3)
    model = fit(X, y, max_iter=1)
    p = model.predict_proba(X + 0.1)
    assert LABELS in dict(model.kernels_)
    rows = np.vstack([model.predict_proba(x[None] + 0.1) for x in X[:3]])
    assert_allclose(rows, p[:3], rtol=1e-9)
    assert_array_equal(model.set_params(n_jobs=1).predict_proba(X + 0.1), p)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X + 0.1), p)
    assert_array_equal(clone(model).fit(X, y).predict_proba(X + 0.1), p)


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_predictions_have_the_power():
    X, y = make_stripes(36, 3)
    posterior = fit(X, y, max_iter=1)._state.posterior
    lf, plain = posterior.votes.log_frequencies, replace(posterior, power=1.0).decisions(X)
    expected = np.exp(lf) * np.exp(plain - lf) ** posterior.power
    expected /= expected.sum(axis=1, keepdims=True)
    assert posterior.power != 1.0
    assert_allclose(np.exp(posterior.decisions(X)), expected, rtol=1e-8)


@pytest.mark.usefixtures("few")
def test_a_stream_tells_them_in_any_order():
    X, y = make_stripes(60, 3)
    first, later = np.arange(35), np.arange(35, 60)

    known = pickle.dumps(fit(X[first], y[first], max_iter=1))

    def stream(*chunks):
        model = pickle.loads(known)
        for chunk in chunks:
            model.partial_fit(X[chunk], y[chunk])
        return model

    model = stream(*np.split(later, [1, 10]))
    assert_allclose(stream(later[::-1]).predict_proba(X), model.predict_proba(X), rtol=1e-7)
    scaled = model._state.coordinates.scaled(X[later])
    votes = Votes.of(scaled, np.eye(3)[y[later]])
    expected = find(stream()).plus(votes)
    for one, other in zip(find(model).said, expected.said, strict=True):
        assert_allclose(one.precision, other.precision, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_a_class_that_comes_later_and_weights_of_new_rows():
    X, y = make_stripes(80, 3)
    first = np.flatnonzero(y < 2)[:35]
    model = VBGPClassifier(max_iter=1, random_state=0)
    model.partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert np.max(model.predict_proba(X[first])[:, 2]) < 0.1
    before, later = find(model), np.flatnonzero(y < 2)[35:]
    model.partial_fit(X[later], y[later], sample_weight=np.full(len(later), 0.5))
    scaled = model._state.coordinates.scaled(X[later])
    expected = before.plus(Votes.of(scaled, 0.5 * np.eye(3)[y[later]]))
    for one, other in zip(find(model).said, expected.said, strict=True):
        assert_allclose(one.shift, other.shift, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_weights_are_repetitions(rng):
    X, y = make_stripes(40)
    times = rng.integers(0, 3, 40)
    weighted = VBGPClassifier(max_iter=1, random_state=0).fit(X, y, sample_weight=times)
    repeated = fit(np.repeat(X, times, axis=0), np.repeat(y, times), max_iter=1)
    assert find(weighted).said[0].precision.shape == (15, 15)
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_missing_entries(rng):
    X, y = make_stripes(60)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = fit(X[:40], y[:40], max_iter=2)
    assert find(model).inducing.Z.shape == (15, 4)
    model.partial_fit(X[40:], y[40:])
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.mean(p.argmax(axis=1) == y) > 0.8


@pytest.mark.usefixtures("few")
@pytest.mark.thorough
def test_a_warm_start_and_one_that_learns_nothing():
    X, y = make_stripes(50)
    model = fit(X, y, max_iter=2, warm_start=True)
    find(model.fit(X, y))
    kept = model.set_params(learn_hyperparameters=False).fit(X, y)
    assert kept.n_inducing_ == 0
    assert {type(one) for one in kept._state.found.trained} == {ClassProcess}
    assert model.score(X, y) > 0.9


@pytest.mark.thorough
def test_a_sharp_border_of_many_rows_is_found():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4_500, 2))
    y = (X[:, 0] > 0.0) ^ (X[:, 1] > 0.0)
    model = VBGPClassifier(random_state=0).fit(X[:2_500], y[:2_500])
    assert LABELS in dict(model.kernels_)
    assert log_loss(y[2_500:], model.predict_proba(X[2_500:])) < 0.03
