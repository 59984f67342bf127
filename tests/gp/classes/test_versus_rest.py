"""More than two classes with a probit likelihood of each versus the rest, against dense twins."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp.classes._probit_process import ProbitProcess
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._versus_rest import VersusRest
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Matern
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.gp.cases import make_classes, make_classes_apart
from tests.oracles import gp_classes as oracle

KERNEL, NOISE = (1.5 * RBF([1.0, 2.0])).bind(2), 0.3
UNITS = [1.0, 0.5, 1.0]


def make(kind=VersusRest, kernel=KERNEL):
    return kind(Process(kernel, NOISE, np.inf), 2)


def make_votes(rng, n=12, gaps=False, units=UNITS):
    """Some places have several votes of all classes."""
    X = rng.standard_normal((n, 2))
    counts = np.eye(3)[rng.integers(3, size=n)] + rng.integers(0, 3, (n, 3)) * (
        np.arange(n)[:, None] < 5
    )
    if gaps:
        X = append_variances(X, rng.exponential(size=X.shape) * (rng.uniform(size=X.shape) < 0.4))
    return Votes.of(X, counts * units)


def predict(process, moments, votes):
    return np.exp(process.link.log_probabilities(*moments, votes.log_frequencies))


def pair(counts, c):
    return np.column_stack([counts.sum(axis=1) - counts[:, c], counts[:, c]])


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.every_nth("gaps", 2)
def test_evidence_is_half_of_that_of_all_pairs(rng, gaps):
    votes, process = make_votes(rng, gaps=gaps), make()
    covariance = UncertainCovariance(KERNEL, 2)
    K, t = covariance(votes.X), NOISE + covariance.lost(votes.X)
    own = KERNEL.diag(votes.X[:, :2])
    expected = [
        oracle.measure_probit_evidence(
            K, stats.norm.ppf(frequency) * np.sqrt(NOISE + own), pair(votes.counts, c), t
        )
        for c, frequency in enumerate(oracle.find_frequencies(votes.counts))
    ]
    value, gradient = process.evidence(votes)
    assert_allclose(value, 0.5 * sum(expected), rtol=1e-9)
    assert_allclose(process.log_evidence(votes), value)
    numerical = numerical_gradient(
        lambda x: process.with_vector(x).log_evidence(votes), process.vector
    )
    assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("gaps", [False, True])
def test_leaving_votes_out(rng, gaps):
    """A vote is left out of all pairs, with the weight of its own class."""
    votes, process = make_votes(rng, gaps=gaps), make()
    covariance = UncertainCovariance(KERNEL, 2)
    places, classes, expected = zip(
        *oracle.leave_out_versus_rest(
            covariance(votes.X),
            votes.counts,
            UNITS,
            oracle.find_frequencies(votes.counts),
            KERNEL.diag(votes.X[:, :2]),
            NOISE + covariance.lost(votes.X),
            NOISE,
        ),
        strict=True,
    )
    assert_array_equal(votes.left_out.owner, places)
    assert_array_equal(votes.left_out.counts.nonzero()[1], classes)
    found = predict(process, process.leave_out(votes), votes)
    assert_allclose(found, np.array(expected), rtol=1e-6)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("units", [[1.0, 0.5, 1.0], [1.0, 1.0, 1.0]])
@pytest.mark.every_nth("gaps", 2)
def test_predictions_are_shares_of_what_pairs_say(rng, gaps, units):
    votes, process = make_votes(rng, gaps=gaps, units=units), make()
    X, two = make_votes(rng, 6, gaps).X, make(ProbitProcess)
    lost = UncertainCovariance(KERNEL, 2).lost(X)
    told = process.factorise(votes)
    p = np.empty((6, 3))
    for c in range(3):
        frequency = oracle.find_frequencies(votes.counts)[c]
        log_frequencies = np.log([1.0 - frequency, frequency])
        one = two.factorise(Votes(votes.X, pair(votes.counts, c), log_frequencies))
        mean, variance = one.moments(X)
        p[:, c] = stats.norm.cdf(mean[:, 1] / np.sqrt(NOISE + lost + variance))
    mean, variance = told.moments(X)
    found = predict(process, (mean, variance + lost), votes)
    assert_allclose(found, p / p.sum(axis=1, keepdims=True))
    if units == UNITS:  # by Laplace's approximation, as from neighbours
        one = process.predict_from_neighbours(votes, X[1])
        assert_allclose(one, [*mean[1], variance[1]])


def test_of_two_classes_both_pairs_are_the_same(rng):
    X, labels = rng.standard_normal((20, 2)), rng.integers(2, size=20)
    votes, (many, two) = Votes.of(X, np.eye(2)[labels]), map(make, (VersusRest, ProbitProcess))
    for one, other in zip(many.evidence(votes), two.evidence(votes), strict=True):
        assert_allclose(one, other, rtol=1e-9)
    for ask in (
        lambda process: process.leave_out(votes),
        lambda process: process.factorise(votes).moments(X + 0.3),
    ):
        found, expected = (predict(process, ask(process), votes) for process in (many, two))
        assert_allclose(found, expected, rtol=1e-6)


def test_nothing_known_leaves_the_frequencies(rng):
    votes, process = make_votes(rng), make()
    moments = process.factorise(votes).moments(np.array([[1e4, 0.0]]))
    p = predict(process, moments, votes)
    assert_allclose(p[0], oracle.find_frequencies(votes.counts))


def test_votes_are_added_to_what_others_say(rng, monkeypatch):
    """As by all of them anew, but without modes to find."""
    votes, process = make_votes(rng, 30, units=np.ones(3)), make()
    expected = process.factorise(votes)
    first = process.factorise(Votes.of(votes.X[:28], votes.counts[:28]))
    monkeypatch.setattr("skvbgp.gp.classes._probit_process.Mode.find", None)
    found = process.extend(first, votes)
    for one, other in zip(found.moments(votes.X), expected.moments(votes.X), strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.fixture
def overlapping():
    X, y = make_classes(100)
    rng = np.random.default_rng(0)
    return X, np.where(rng.uniform(size=100) < 0.4, rng.integers(3, size=100), y)


def fit(X, y, weights=None, **options):
    kernels = [("M", Matern(2.0, nu=1.5))]
    return VBGPClassifier(kernels, max_iter=4, random_state=0, **options).fit(X, y, weights)


def list_kinds(model):
    return {type(process) for process in model._state.found.trained}


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize(
    ("limit", "most"), [("_few_places._TRIAL_PLACES", 60), ("_search._MOST_CLASSES", 2)]
)
@pytest.mark.every_nth("limit", 2)
def test_few_classes_of_few_rows_that_overlap_are_tried_with_it(
    overlapping, monkeypatch, limit, most
):
    X, y = overlapping
    model = fit(X, y)
    assert list_kinds(model) == {ClassProcess, VersusRest}
    assert model.kernels_[-1][0] == "M, probit"
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert list_kinds(fit(*make_classes_apart(80))) == {ClassProcess}
    monkeypatch.setattr(f"skvbgp.gp.classes.{limit}", most)
    assert list_kinds(fit(X, y)) == {ClassProcess}


@pytest.mark.usefixtures("quick_searches")
def test_rows_that_are_not_one_each_are_not(overlapping):
    """Votes that come together would be evidence of functions that nobody has seen."""
    X, y = overlapping
    assert list_kinds(fit(X, y, np.where(y == 1, 5.0, 1.0))) == {ClassProcess}
    assert list_kinds(fit(np.vstack([X, X]), np.append(y, y))) == {ClassProcess}
    assert VersusRest in list_kinds(fit(X, y, class_weight={1: 5.0}))  # of odds, not of rows


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.thorough
def test_a_stream_that_comes_to_need_neighbours(overlapping, monkeypatch):
    monkeypatch.setattr("skvbgp.gp.classes._learner._EXACT_PLACES", 100)
    monkeypatch.setattr("skvbgp.gp.classes._learner._NEIGHBOURS", 90)
    X, y = overlapping
    model = fit(X, y)
    before = model.predict_proba(X)
    model.partial_fit(X[:1] + 50.0, [1])
    assert model._state.k == 90
    assert VersusRest in list_kinds(model)
    assert_allclose(model.predict_proba(X), before, atol=0.05)
