"""Two classes with a probit likelihood, against dense twins of Laplace's approximation."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.metrics import log_loss

from skvbgp._core.linalg import cholesky
from skvbgp.gp import VBGPClassifier
from skvbgp.gp._process import Process
from skvbgp.gp.classes._few_places import FewPlacesSearch
from skvbgp.gp.classes._probit_process import AlikeProcess, Mode, ProbitProcess
from skvbgp.gp.classes._probit_sites import Around
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._shares import RANGES, Combination
from skvbgp.gp.classes._start import (
    free_length_scales,
    make_class_kernels,
    start_alike_process,
    start_anova_process,
    start_class_process,
)
from skvbgp.gp.classes._versus_rest import AlikeVersusRest
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Anova, Matern
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.gp.cases import make_classes
from tests.gp.searches import make_class_search
from tests.oracles import gp_classes as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNELS = [
    (1.5 * RBF([1.0, 2.0])).bind(2),
    Matern(1.3, nu=1.5, isotropic=True).bind(2),
    Anova(1.3, [0.5, 2.0], isotropic=True),
]
UNITS = [1.0, 0.5]


@pytest.fixture(params=["complete", "gaps"])
def votes(rng, request):
    """Some places have several votes of both classes; a row of the second class has half a vote."""
    X = rng.standard_normal((12, 2))
    counts = np.eye(2)[rng.integers(2, size=12)] + rng.integers(0, 3, (12, 2)) * (
        np.arange(12)[:, None] < 5
    )
    if request.param == "gaps":
        X = append_variances(X, rng.exponential(size=(12, 2)) * (rng.uniform(size=(12, 2)) < 0.4))
    return Votes.of(X, counts * UNITS)


def make(kernel, noise=0.3, **options):
    return ProbitProcess(Process(kernel, noise, np.inf), 2, **options)


def known(process, votes):
    """K, m, votes and t."""
    covariance = UncertainCovariance(process.kernel, 2)
    frequencies = oracle.find_frequencies(votes.counts)
    own = process.kernel.diag(votes.X[:, :2])
    mean = stats.norm.ppf(frequencies[1]) * np.sqrt(process.process.noise + own)
    t = process.process.noise + covariance.lost(votes.X)
    return covariance(votes.X), mean, votes.counts, t


@pytest.mark.parametrize("kernel", KERNELS)
def test_evidence_and_its_gradient(votes, kernel):
    process = make(kernel)
    value, gradient = process.evidence(votes)
    assert_allclose(value, oracle.measure_probit_evidence(*known(process, votes)), rtol=1e-9)
    assert process.log_evidence(votes) == value
    numerical = numerical_gradient(
        lambda x: process.with_vector(x).log_evidence(votes), process.vector
    )
    assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_the_mode_is_found_where_functions_are_far_larger_than_the_noise(rng, size):
    """Else rounding makes evidence of labels, which are no more probable than one."""
    X = rng.standard_normal((80, 2))
    labels = (X[:, 0] + 0.3 * rng.standard_normal(80) > 1.2).astype(int)
    process, votes = make((size * RBF([1.0, 1.0])).bind(2), 1e-4), Votes.of(X, np.eye(2)[labels])
    mode = Mode.find(process, votes)
    scale = np.max(np.abs(mode.f - mode.m))
    assert_allclose(mode.K @ mode.at.g, mode.f - mode.m, rtol=0.0, atol=5e-3 * scale)
    assert mode.log_evidence < 0.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_leaving_votes_out(votes, kernel):
    process = make(kernel)
    mean, variance = process.leave_out(votes)
    K, m, counts, t = known(process, votes)
    places, classes, means, variances = map(
        np.array, zip(*oracle.leave_out_probit_votes(K, m, counts, UNITS, t), strict=True)
    )
    assert_array_equal(votes.left_out.owner, places)
    assert_array_equal(votes.left_out.counts.nonzero()[1], classes)
    assert_allclose(mean, np.column_stack([-means, means]), rtol=1e-6, atol=1e-8)
    assert_allclose(variance, variances + (t - 0.3)[places], rtol=1e-6)


def test_predictions_are_those_of_the_normal_parts(votes, rng):
    process = make(KERNELS[0])
    K, m, counts, t = known(process, votes)
    f = oracle.find_probit_mode(K, m, counts, t)
    X, covariance = rng.standard_normal((4, 2)), UncertainCovariance(process.kernel, 2)
    k = covariance(votes.X, X)
    curvature = oracle.differentiate_probit(f, counts, t)[2]
    prior = stats.norm.ppf(oracle.find_frequencies(counts)[1]) * np.sqrt(0.3 + 1.5)
    expected = prior + k.T @ np.linalg.solve(K, f - m)
    less = np.linalg.inv(K + np.diag(-1.0 / curvature))
    mean, variance = process.factorise(votes).moments(X)
    assert_allclose(mean, np.column_stack([-expected, expected]), rtol=1e-6, atol=1e-8)
    assert_allclose(variance, 1.5 - np.einsum("ij,ik,kj->j", k, less, k), rtol=1e-6)
    one = process.predict_from_neighbours(votes, X[1])
    assert_allclose(one, [*mean[1], variance[1]], rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.every_nth("gaps", 2)
def test_whole_votes_are_matched_by_their_moments(rng, kernel, gaps):
    """Left out and predicted as by sites that are made one at a time, by quadrature."""
    X = rng.standard_normal((7, 2))
    counts = np.eye(2, dtype=int)[rng.integers(2, size=7)]
    counts[:3] += rng.integers(0, 3, (3, 2))
    if gaps:
        X = append_variances(X, rng.exponential(size=(7, 2)) * (rng.uniform(size=(7, 2)) < 0.4))
    votes, process = Votes.of(X, counts.astype(float)), make(kernel)
    K, m, _, t = known(process, votes)
    place, label, tau, nu = oracle.propagate_expectations(K, m, counts, t)

    mean, variance = process.leave_out(votes)
    out = votes.left_out
    for k, (i, c) in enumerate(zip(place, label, strict=True)):
        f, covariance = oracle.condition_on_sites(K, m, place, tau, nu, without=k)
        (j,) = np.flatnonzero((out.owner == i) & (out.counts[:, c] > 0))
        assert_allclose(mean[j], [-f[i], f[i]], rtol=1e-5, atol=1e-6)
        assert_allclose(variance[j], covariance[i, i] + t[i] - 0.3, rtol=1e-5, atol=1e-6)

    f, covariance = oracle.condition_on_sites(K, m, place, tau, nu)
    mean, variance = process.factorise(votes).moments(votes.X)
    k = UncertainCovariance(kernel, 2)(votes.X)
    assert_allclose(k, K)
    assert_allclose(mean[:, 1], f, rtol=1e-5, atol=1e-6)
    less = np.linalg.solve(K, K - covariance)
    expected = UncertainCovariance(kernel, 2).diag(votes.X) - np.sum(K * less, axis=0)
    assert_allclose(variance, expected, rtol=1e-5, atol=1e-6)


SMOOTH = [(RBF(3.0), 0.3), (25.0 * RBF(3.0), 0.01)]


def count_factorisations(monkeypatch):
    """A list that has an entry for each of those that are made from now on."""
    calls = []

    def count(*args):
        calls.append(1)
        return cholesky(*args)

    monkeypatch.setattr("skvbgp.gp.classes._probit_sites.cholesky", count)
    return calls


@pytest.mark.parametrize("kernel, noise", SMOOTH)
@pytest.mark.every_nth("noise", 2)
def test_votes_of_smooth_functions_are_matched_by_few_factorisations(
    rng, monkeypatch, kernel, noise
):
    """All of them together, until the first order around one of them is all that matters."""
    X = rng.standard_normal((60, 2))
    labels = (X[:, 0] + 0.5 * rng.standard_normal(60) > 0.0).astype(int)
    votes, process = Votes.of(X, np.eye(2)[labels]), make(kernel.bind(2), noise)
    calls, found = count_factorisations(monkeypatch), process.match(votes)
    assert len(calls) <= 6
    again = found
    for _ in range(3):
        again = replace(again, given=None).match()
    assert_allclose(found.f, again.f, rtol=1e-8, atol=1e-8)
    assert np.max(np.abs(process._expand(votes).f - again.f)) > 0.03


def test_scores_of_hundreds_are_matched_as_far_as_rounding_lets_them(rng, monkeypatch):
    """As of a border that is sharp: a score of 600 moves by more than 1e-3 when nothing changes."""
    X = rng.standard_normal((60, 2))
    votes = Votes.of(X, np.eye(2)[(X[:, 0] > 0.0).astype(int)])
    calls = count_factorisations(monkeypatch)
    found = make(RBF(10.0).bind(2), 1e-5).match(votes)
    assert np.max(np.abs(found._scores)) > 300.0
    assert found.given is not None  # as it is of sites that are matched
    assert len(calls) <= 8


def test_around_sites_all_others_are_known_to_first_order(rng):
    """And those of one place exactly, however much they change. Dense matrices say so."""
    X = rng.standard_normal((6, 2))
    K, m, tau, nu = Matern(1.0).bind(2)(X), *rng.standard_normal((3, 6))
    tau, more, moved = np.exp(tau), *rng.standard_normal((2, 6))

    def measure(tau, nu):
        Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
        own = np.diagonal(Sigma)
        return np.array([1.0 / own, Sigma @ (np.linalg.solve(K, m) + nu) / own])

    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    around = Around(m, np.diagonal(K), Sigma, tau, nu)
    assert_allclose(around.measure(tau, nu), measure(tau, nu), rtol=1e-9)
    one = np.eye(6)[2]
    found = np.array(around.measure(tau + 9.0 * one, nu - 5.0 * one))[:, 2]
    assert_allclose(found, measure(tau + 9.0 * one, nu - 5.0 * one)[:, 2], rtol=1e-9)
    steps = [(tau + h * more, nu + h * moved) for h in (-1e-5, 1e-5)]
    found, expected = (np.diff([f(*at) for at in steps], axis=0) for f in (around.measure, measure))
    assert_allclose(found, expected, rtol=1e-6, atol=1e-10)


def test_more_places_without_sites_are_told_by_the_others(rng):
    X = rng.standard_normal((6, 2))
    K, m, nu = Matern(1.0).bind(2)(X), *rng.standard_normal((2, 6))
    tau = np.exp(nu) * (np.arange(6) < 4)
    nu = nu * (np.arange(6) < 4)
    part = np.ix_(range(4), range(4))
    Sigma = np.linalg.inv(np.linalg.inv(K[part]) + np.diag(tau[:4]))
    found = Around(m[:4], np.diagonal(K)[:4], Sigma, tau[:4], nu[:4]).plus(K, m + 1.0)
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    assert_allclose(found.Sigma, Sigma, rtol=1e-9, atol=1e-12)
    expected = Around(m + 1.0, np.diagonal(K), Sigma, tau, nu)
    assert_allclose(found.measure(tau, nu), expected.measure(tau, nu), rtol=1e-9)


@pytest.mark.parametrize("kernel, noise", SMOOTH)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.every_nth("gaps", 2)
@pytest.mark.every_nth("noise", 2)
def test_votes_are_added_to_what_others_say(rng, monkeypatch, kernel, noise, gaps):
    """As by all of them anew, but without a mode to find, and by fewer factorisations."""
    X = rng.standard_normal((62, 2))
    labels = (X[:, 0] + 0.5 * rng.standard_normal(62) > 0.0).astype(int)
    if gaps:
        X = append_variances(X, rng.exponential(size=X.shape) * (rng.uniform(size=X.shape) < 0.4))
    votes, process = Votes.of(X, np.eye(2)[labels]), make(kernel.bind(2), noise)
    first = process.factorise(Votes.of(X[:60], votes.counts[:60]))
    calls = count_factorisations(monkeypatch)
    expected, n_anew = process.factorise(votes), len(calls)
    calls.clear()
    monkeypatch.setattr("skvbgp.gp.classes._probit_process.Mode.find", None)
    found = process.extend(first, votes)
    assert len(calls) < n_anew
    for one, other in zip(found.moments(X[::3]), expected.moments(X[::3]), strict=True):
        assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("size, most", [(0.5, 20), (1.0, 0)])
def test_what_cannot_be_added_is_found_anew(rng, monkeypatch, size, most):
    """Votes that are not whole, or that are not matched from where the others were."""
    X = rng.standard_normal((12, 2))
    votes, process = Votes.of(X, size * np.eye(2)[rng.integers(2, size=12)]), make(KERNELS[0])
    first = process.factorise(Votes.of(X[:11], np.ceil(votes.counts[:11])))
    monkeypatch.setattr("skvbgp.gp.classes._probit_sites._MAX_FACTORISED", most)
    expected = process.factorise(votes)
    assert_array_equal(process.extend(first, votes).sites.f, expected.sites.f)


def test_without_a_match_laplaces_sites_remain(rng, monkeypatch):
    votes = Votes.of(rng.standard_normal((20, 2)), np.eye(2)[rng.integers(2, size=20)])
    process = make(KERNELS[0])
    assert np.max(np.abs(process.match(votes).f - process._expand(votes).f)) > 1e-3
    monkeypatch.setattr("skvbgp.gp.classes._probit_sites._MAX_FACTORISED", 1)
    assert_array_equal(process.match(votes).f, process._expand(votes).f)


def test_nothing_known_leaves_the_frequencies(votes):
    process = make(KERNELS[0])
    moments = process.factorise(votes).moments(np.array([[1e4, 0.0]]))
    p = np.exp(process.link.log_probabilities(*moments, votes.log_frequencies))
    assert_allclose(p[0], oracle.find_frequencies(votes.counts))


def test_a_vote_of_two_is_two_votes(rng):
    """Rows at one place have the same function, and no noise of their own keeps them apart."""
    X, labels = rng.standard_normal((6, 2)), np.eye(2)[[0, 1, 1, 0, 1, 0]]
    process = make(KERNELS[1])
    twice = Votes.of(X, labels * np.array([2.0, 1, 1, 1, 1, 1])[:, None])
    rows = Votes(np.vstack([X[:1], X]), np.vstack([labels[:1], labels]), twice.log_frequencies)
    assert_allclose(process.log_evidence(twice), process.log_evidence(rows), rtol=1e-9)


def make_alike(length_scales, ratios):
    process = Process(RBF(length_scales).bind(3), 0.3, np.inf)
    return AlikeProcess(process, 3, np.sqrt(3.0), log_ratios=np.log(ratios))


@pytest.mark.parametrize("ratios", [1.0, np.array([0.5, 1.0, 2.0])], ids=["", "in proportion"])
def test_length_scales_that_are_alike(ratios):
    """Their prior is nearly free in what they have in common; that of others does not count."""
    process, other = (make_alike(one, ratios) for one in ([0.5, 3.0, 1.0], [1.0, 1.0, 1.0]))
    value, gradient = process.log_prior()
    rise = oracle.measure_alike_prior(np.array([0.5, 3.0, 1.0]), np.sqrt(3.0) * ratios)
    rise -= oracle.measure_alike_prior(np.ones(3), np.sqrt(3.0) * ratios)
    assert_allclose(value - other.log_prior()[0], rise)
    numerical = numerical_gradient(lambda x: process.with_vector(x).log_prior()[0], process.vector)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("log_scales", [None, np.array([-1.0, 2.0])])
def test_of_more_classes_the_prior_is_the_same(log_scales):
    processes = [start_alike_process(2, (), n_classes, log_scales) for n_classes in (2, 3)]
    medians = np.log([np.sqrt(2.0)] * 2) if log_scales is None else log_scales
    for process in processes:
        assert_allclose(process.log_prior()[1][:2], 0.0, atol=1e-12)
        assert_allclose(np.log(process.shared_scale) + process.log_ratios, medians)
    (value, slope), (other, gradient) = (
        process.with_vector(np.array([0.5, -1.0, 0.2])).log_prior() for process in processes
    )
    assert value == other
    assert_array_equal(slope, gradient)


def test_they_start_at_the_distance_of_rows():
    """With the columns of a category as one input."""
    process = start_alike_process(4, (0, 1, 1, 2), 2)
    assert_allclose(process.kernel.length_scale, np.sqrt(3.0))
    assert_allclose(process.log_prior()[1][:3], 0.0, atol=1e-12)
    assert len(process.vector) == 4


def test_an_anova_kernel_starts_with_as_much_variance_for_any_number_of_inputs():
    """Its variances have a median of one; those of the columns of a category are one."""
    for d in (2, 20):
        process = start_anova_process(d, (), 2)
        assert len(process.vector) == d + 2
        assert_allclose(process.kernel.diag(np.zeros((1, d))), (1.0 + 1.0 / d) ** d - 1.0)
        value, gradient = process.log_prior()
        assert_allclose(gradient[:-1], 0.0)
    other = process.with_vector(process.vector + [0.0, *np.ones(d), 0.0])
    assert_allclose(other.log_prior()[0] - value, -0.5 * d)
    assert len(start_anova_process(4, (0, 1, 1, 2), 2).vector) == 5


@pytest.mark.usefixtures("few_kernels")
@pytest.mark.parametrize("missing", [False, True])
def test_an_anova_kernel_is_tried_also_of_rows_with_gaps(several, missing):
    X, y = several
    X = np.where(missing & (np.arange(X.size).reshape(X.shape) == 7), np.nan, X)
    model = VBGPClassifier(max_iter=1, random_state=0).fit(X, y)
    assert "ANOVA, probit" in [name for name, _ in model.kernels_]


@pytest.mark.parametrize("noise", [1e-9, 10.0])
@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_extremes_have_a_mode(rng, noise, size):
    """The evidence rises to it, and what is left out has a variance."""
    X = rng.standard_normal((20, 2))
    votes = Votes.of(X, size * np.eye(2)[rng.integers(2, size=20)])
    process = make(KERNELS[0], noise)
    value, gradient = process.evidence(votes)
    mean, variance = process.leave_out(votes)
    assert np.isfinite([value, *gradient]).all()
    assert np.isfinite(mean).all()
    assert np.all(variance >= 0.0)
    assert np.all(variance <= 1.5 * (1.0 + 1e-9))


@pytest.fixture
def several(monkeypatch):
    """Rows of more places than those that kernels are tried on, and two classes that overlap."""
    monkeypatch.setattr("skvbgp.gp.classes._few_places._TRIAL_PLACES", 40)
    return overlap(80)


def overlap(n):
    X, y = make_classes(n)
    return X, np.where(np.random.default_rng(0).uniform(size=n) < 0.2, y == 0, y > 0)


def fit(X, y, weights=None, max_iter=2, **options):
    kernels = [("M", Matern(2.0, nu=1.5))]
    return VBGPClassifier(kernels, max_iter=max_iter, random_state=0, **options).fit(X, y, weights)


def list_kinds(model):
    return {type(process) for process in model._state.found.trained}


@pytest.mark.usefixtures("few_kernels")
def test_two_classes_that_overlap_are_tried_with_it(several):
    X, y = several
    model = fit(X, y)
    assert list_kinds(model) == {ClassProcess, ProbitProcess}
    assert model.kernels_[-1][0] == "M, probit"
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert list_kinds(fit(X, make_classes(80)[1] > 0)) == {ClassProcess}
    assert list_kinds(fit(X, y * 1 + (X[:, 0] > 1.0))) == {ClassProcess}
    assert list_kinds(fit(X, y, n_neighbors=50)) == {ClassProcess}


def test_rows_of_a_heavier_class_are_no_evidence_of_little_noise(several):
    """Five votes of one row are not five that agree."""
    X, y = several
    found = [
        fit(X, y, weights, max_iter=4)._state.found for weights in (None, np.where(y, 5.0, 1.0))
    ]
    noise = [
        [m.process.noise for m in one.trained if isinstance(m, ProbitProcess)] for one in found
    ]
    assert all(noise)
    assert_allclose(noise[1], noise[0], rtol=0.1)  # they begin with kernels of other regressions


@pytest.mark.parametrize("n_trial, n_probit", [(40, 2), (500, 1)])
@pytest.mark.every_nth("n_trial", 2)
def test_of_few_rows_only_the_best_kernel_is(monkeypatch, n_trial, n_probit):
    """The other parts average over draws of their hyperparameters."""
    monkeypatch.setattr("skvbgp.gp.classes._few_places._TRIAL_PLACES", n_trial)
    X, y = overlap(120)
    useless = RBF(1e-3, length_scale_bounds="fixed")
    kernels, tried = [("S", useless), ("M", Matern(2.0, nu=1.5))], []
    leave_out = ProbitProcess.leave_out
    monkeypatch.setattr(
        ProbitProcess, "leave_out", lambda one, votes: tried.append(one) or leave_out(one, votes)
    )
    found = VBGPClassifier(kernels, max_iter=8, random_state=0).fit(X, y)._state.found
    assert len(tried) == n_probit
    assert isinstance(tried[-1].process.kernel, Matern)
    assert {type(process) for process in found.trained} == {ClassProcess, ProbitProcess}
    regressions = [p for p in found.processes if isinstance(p, ClassProcess)]
    assert (len(regressions) > len(kernels)) == (n_trial == 500)


def test_of_more_rows_those_by_input_are_and_one_is_alike(several, monkeypatch):
    """Beside these one more regression shares. A warm start knows nothing of likelihoods."""
    monkeypatch.setattr("skvbgp.gp.classes._shares._LEAST_SHARE", 0.0)
    monkeypatch.setattr(FewPlacesSearch, "_try_sharp", None)  # which is one of these
    X, y = several
    found = VBGPClassifier(max_iter=2, random_state=0).fit(X, y)._state.found
    kinds = [type(process) for process in found.trained]
    assert kinds == [ClassProcess] * 3 + [ProbitProcess] * 2 + [AlikeProcess, ProbitProcess]
    best, before, after = found.names[0], found.names[1:3], found.names[3:5]
    assert best.removesuffix(RANGES) == before[0].removesuffix(", by input")
    assert set(after) == {f"{name}, probit" for name in before}
    assert all(name.endswith(", by input") for name in before)
    assert found.names[5:] == ("SE, by input, alike, probit", "ANOVA, probit")
    starts = found.list_starts(anew=True)
    assert {type(process) for _, process in starts} == {ClassProcess}
    assert {name for name, _ in starts} == {best, *before, "SE, by input", "ANOVA"}


def test_of_few_rows_one_regression_with_a_shared_scale_is_beside_those_by_input(
    several, monkeypatch
):
    """The best one: the others have been judged by what they are alone."""
    monkeypatch.setattr("skvbgp.gp.classes._shares._LEAST_SHARE", 0.0)
    monkeypatch.setattr("skvbgp.gp.classes._few_places._TRIAL_PLACES", 500)
    X, y = several
    tried, add = [], FewPlacesSearch._add_probit
    monkeypatch.setattr(
        FewPlacesSearch,
        "_add_probit",
        lambda one, *given: tried.extend(one.trials) or add(one, *given),
    )
    found = VBGPClassifier(max_iter=2, random_state=0).fit(X, y)._state.found
    shared = [trial for trial in tried if trial.process.shared_scale is None]
    best = max(shared, key=lambda trial: trial.score).name
    by_input = [trial.name for trial in tried if trial.process.shared_scale is not None]
    assert len(shared) >= 5
    assert list(found.names[: len(by_input) + 1]) == [best, *by_input]
    assert all(name.endswith(", probit") for name in found.names[len(by_input) + 1 :])


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.usefixtures("few_kernels")
@pytest.mark.every_nth("gains", 2)
def test_of_classes_that_can_be_told_apart_it_has_to_gain(monkeypatch, gains):
    """As it does where a border is sharp: rows that are left out decide."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 2))
    monkeypatch.setattr(Combination, "gains", lambda *_: gains)
    found = VBGPClassifier(max_iter=2, random_state=0).fit(X, X[:, 0] > 0.0)._state.found
    assert found.score > -0.25 * np.log(2.0)
    assert ("ANOVA, probit" in found.names) == gains


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("gains", [[True, True], [True, False], [False]])
@pytest.mark.usefixtures("few_kernels")
@pytest.mark.every_nth("gains", 3)
def test_of_more_rows_one_is_tried_on_some(monkeypatch, n_classes, gains):
    """Only where it gains there it is told of all rows, and has to gain again, by more."""
    monkeypatch.setattr("skvbgp.gp.classes._few_places._TRIAL_PLACES", 30)
    monkeypatch.setattr("skvbgp.gp.classes._shares._LEAST_SHARE", 0.0)
    told, kind = [], AlikeProcess if n_classes == 2 else AlikeVersusRest
    leave_out = kind.leave_out
    monkeypatch.setattr(
        kind, "leave_out", lambda one, votes: told.append(len(votes)) or leave_out(one, votes)
    )
    asked = []
    monkeypatch.setattr(
        Combination, "gains", lambda *given: asked.append(given[-1]) or gains[len(asked) - 1]
    )
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 2))
    y = np.digitize(X @ [1.0, 0.5], [0.0, 0.5][: n_classes - 1])
    found = VBGPClassifier(max_iter=2, random_state=0).fit(X, y)._state.found
    assert [name for name in found.names if "probit" in name] == [
        name for name in ["SE, by input, alike, probit"] if all(gains)
    ]
    assert told == [30, 50][: len(gains)]
    assert_allclose(asked, [np.sqrt(30 / 50), 1.0][: len(gains)])


@pytest.mark.usefixtures("few_kernels")
def test_it_starts_from_all_regressions_by_input(monkeypatch):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 2))
    asked, start = [], FewPlacesSearch.start_labels
    monkeypatch.setattr(
        FewPlacesSearch, "start_labels", lambda one, freed: asked.append(freed) or start(one, freed)
    )
    VBGPClassifier(max_iter=2, random_state=0).fit(X, np.digitize(X @ [1.0, 0.5], [0.0, 0.5]))
    names = [one.name for one in asked[0]]
    assert len(names) == 2 + ("warped" in names[-1])
    assert all("by input" in name for name in names)


def test_after_a_callback_has_stopped_none_is_tried():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 2))
    votes = Votes.of(X, np.eye(2)[(X[:, 0] > 0.0) * 1])
    search = make_class_search(
        votes, 2, 60, end_pass=lambda _: any("probit" in trial.name for trial in search.trials)
    )
    starts = [(name, start_class_process(kernel, 2)) for name, kernel in make_class_kernels(2)]
    search.run(starts, grows=True)
    assert search.stopped
    assert "SE, by input, alike, probit" not in [trial.name for trial in search.trials]


@pytest.mark.usefixtures("few_kernels")
def test_of_many_classes_none_is_tried(monkeypatch):
    monkeypatch.setattr("skvbgp.gp.classes._few_places._MOST_SHARP", 2)
    monkeypatch.setattr(AlikeVersusRest, "evidence", None)
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 2))
    y = np.digitize(X @ [1.0, 0.5], [0.0, 0.5])
    found = VBGPClassifier(max_iter=2, random_state=0).fit(X, y)._state.found
    assert found.score > -0.25 * np.log(3.0)


@pytest.mark.thorough
def test_curved_borders_of_several_classes_are_found():
    X = np.random.default_rng(1).standard_normal((600, 2))
    y = np.digitize(np.sum(X**2, axis=1), [0.8, 2.2])
    model = VBGPClassifier(random_state=0).fit(X[:150], y[:150])
    assert "SE, by input, alike, probit" in [name for name, _ in model.kernels_]
    assert log_loss(y[150:], model.predict_proba(X[150:])) < 0.25


@pytest.mark.thorough
def test_a_sharp_border_is_found():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((600, 2))
    y = (X[:, 0] > 0.0) ^ (X[:, 1] > 0.0)
    model = VBGPClassifier(random_state=0).fit(X[:200], y[:200])
    assert any("probit" in name for name, _ in model.kernels_)
    assert model.score(X[200:], y[200:]) > 0.94


def test_of_more_kernels_by_input_the_two_best_are(several):
    """A warm start may begin with several."""
    X, y = several
    kernels = {
        "a": RBF(2.0, isotropic=True),
        "useless": RBF(1e-3, length_scale_bounds=(1e-3, 2e-3), isotropic=True),
        "b": RBF(3.0, isotropic=True),
    }
    starts = [
        (name, free_length_scales(start_class_process(kernel.bind(2), 2)))
        for name, kernel in kernels.items()
    ]
    search = make_class_search(Votes.of(X, np.eye(2)[y * 1]), 2, 200, max_iter=8)
    search.run(starts, grows=False)
    names = [t.name for t in search.trials if isinstance(t.process, ProbitProcess)]
    alone = {"SE, by input, alike, probit", "ANOVA, probit"}
    assert set(names) == {"a, probit", "b, probit", *alone}


def test_a_stream_that_comes_to_need_neighbours(several, monkeypatch):
    monkeypatch.setattr("skvbgp.gp.classes._learner._EXACT_PLACES", 80)
    monkeypatch.setattr("skvbgp.gp.classes._learner._NEIGHBOURS", 60)
    X, y = several
    model = fit(X, y)
    assert ProbitProcess in list_kinds(model)
    before = model.predict_proba(X)
    model.partial_fit(X[:1] + 50.0, [True])
    assert model._state.k == 60
    assert_allclose(model.predict_proba(X), before, atol=0.05)


def test_warm_starts(several):
    """Training starts from every kernel once; without it, all are kept as they are."""
    X, y = several
    model = fit(X, y, warm_start=True)
    found = model._state.found
    kept = model.set_params(learn_hyperparameters=False).fit(X, y)._state.found
    assert kept.names == found.names
    assert kept.trained == found.trained
    again = model.set_params(learn_hyperparameters=True).fit(X, y)._state.found
    assert set(again.names) <= {"M", "M, probit"}
