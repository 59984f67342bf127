"""Processes of several classes, against dense ones that leave out what is left out."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp.gp._process import Process
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._start import free_length_scales, start_class_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Linear, Matern, RationalQuadratic
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.oracles import gp_classes as oracle

KERNELS = [
    (1.5 * RBF([1.0, 2.0])).bind(2),
    Matern(1.3, nu=1.5, isotropic=True).bind(2),
    RationalQuadratic([1.0, 2.0], alpha=0.7).bind(2),
]


@pytest.fixture
def votes(rng):
    counts = np.eye(3)[rng.integers(3, size=15)] + rng.integers(0, 3, (15, 3)) * (
        np.arange(15)[:, None] < 6
    )
    return Votes.of(rng.standard_normal((15, 2)), counts * rng.uniform(0.5, 2.0, (15, 1)))


@pytest.fixture
def rows(rng):
    """Votes of single rows, up to seven of them at a place; a row of class 1 has half a vote."""
    counts = np.eye(3)[rng.integers(3, size=15)] + rng.integers(0, 3, (15, 3)) * (
        np.arange(15)[:, None] < 6
    )
    return Votes.of(rng.standard_normal((15, 2)), counts * [1.0, 0.5, 2.0])


def make(kernel, **options):
    return ClassProcess(Process(kernel, 0.2, np.inf), 2, link=Link(4.0, 0.7, 0.2), **options)


def known(process, votes):
    frequencies = oracle.find_frequencies(votes.counts)
    return process.process.kernel(votes.X), votes.counts, frequencies, process.process.noise


@pytest.mark.parametrize("gaps", [False, True])
def test_votes_are_added_to_what_others_say(votes, rng, gaps):
    """Whose frequencies are now others, and where functions are wider than at the first ones."""
    kernel = (RBF([1.0, 2.0]) + 0.5 * Linear()).bind(2)
    if gaps:
        votes = replace(votes, X=append_variances(votes.X, rng.exponential(size=votes.X.shape)))
    process, first = make(kernel), Votes.of(votes.X[:12], votes.counts[:12])
    found = process.extend(process.factorise(first), votes)
    X = rng.standard_normal((4, votes.X.shape[1])) ** 2
    expected = process.factorise(votes)
    for one, other in zip(found.moments(X), expected.moments(X), strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-10)
    assert_allclose(found.leave_out()[1], expected.leave_out()[1], rtol=1e-9)


def test_votes_that_rounding_does_not_let_add_are_factorised_with_all(votes):
    process = make(KERNELS[0])
    wrong = process.factorise(votes.part(slice(12)))
    wrong = replace(wrong, L_inv=10.0 * wrong.L_inv)  # says too much
    assert_array_equal(process.extend(wrong, votes).L_inv, process.factorise(votes).L_inv)


@pytest.mark.parametrize("kernel", KERNELS)
def test_leaving_out_in_closed_form(votes, kernel):
    process = make(kernel)
    K, counts, _, noise = known(process, votes)
    mean, variance = process.leave_out(votes)
    expected = oracle.leave_out(K, counts, noise)
    assert_allclose(mean, expected[0], rtol=1e-5, atol=1e-7)
    assert_allclose(variance, expected[1], rtol=1e-5, atol=1e-7)
    value = oracle.measure_log_probability(*known(process, votes), 4.0, 0.7, 0.2)
    assert_allclose(process.evidence(votes)[0], value, rtol=1e-6)
    assert_allclose(process.log_evidence(votes), value, rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_leaving_out_votes_of_single_rows(rows, kernel):
    """The other rows at the place are known."""
    process = make(kernel)
    known_ = known(process, rows)
    value = oracle.measure_log_probability(*known_, 4.0, 0.7, 0.2, units=[1.0, 0.5, 2.0])
    assert_allclose(process.evidence(rows)[0], value, rtol=1e-6)
    assert_allclose(process.log_evidence(rows), value, rtol=1e-6)
    mean, variance = process.leave_out(rows)
    expected = oracle.leave_out_votes(*known_[:2], [1.0, 0.5, 2.0], known_[-1])
    places, classes, means, variances = zip(*expected, strict=True)
    assert_allclose(rows.left_out.owner, places)
    assert_allclose(rows.left_out.counts.nonzero()[1], classes)
    assert_allclose(mean, means, rtol=1e-5, atol=1e-7)
    assert_allclose(variance, variances, rtol=1e-5, atol=1e-7)


def test_a_place_of_one_row_is_left_out(rng):
    """However much the rows of a class count; and any place, where rows cannot be told apart."""
    X, labels = rng.standard_normal((6, 2)), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    process = make(KERNELS[0])
    rows = Votes.of(X, labels * [1.0, 3.0, 0.3])
    places = replace(rows, units=None)
    assert_allclose(process.evidence(rows)[0], process.evidence(places)[0], rtol=1e-12)
    assert_allclose(process.evidence(rows)[1], process.evidence(places)[1], rtol=1e-10)


def with_gaps(votes, rng):
    variance = rng.exponential(size=(15, 2)) * (rng.uniform(size=(15, 2)) < 0.4)
    return replace(votes, X=append_variances(votes.X, variance))


def test_leaving_out_places_with_gaps(votes, rng):
    """What a place's function loses is noise of its votes, and of what is predicted there."""
    votes = with_gaps(votes, rng)
    process = make(KERNELS[0])
    covariance = UncertainCovariance(KERNELS[0], 2)
    K, own = covariance(votes.X), covariance.lost(votes.X)
    noise = (0.2 + own) / votes.counts.sum(axis=1)
    given = process.factorise(votes)
    (mean, variance), constant = given.leave_out(), given.leave_out_ones()
    for i in range(15):
        others = np.arange(15) != i
        weights = np.linalg.solve((K + np.diag(noise))[np.ix_(others, others)], K[others, i])
        assert_allclose(mean[i], weights @ votes.targets[others], rtol=1e-5, atol=1e-7)
        assert_allclose(variance[i], K[i, i] - weights @ K[others, i], rtol=1e-5)
        assert_allclose(constant[i], weights.sum(), rtol=1e-5, atol=1e-7)
    assert_allclose(process.give_back(votes, mean, variance)[1], variance + own, rtol=1e-12)
    x = np.array([0.3, -0.4, 0.0, 0.5])
    near = process.predict_from_neighbours(votes, x)
    weights = np.linalg.solve(K + np.diag(noise), covariance(votes.X, x[None])[:, 0])
    assert_allclose(near[:-1], weights @ votes.targets, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("labels", ["votes", "rows"])
@pytest.mark.every_nth("gaps", 2)
@pytest.mark.every_nth("labels", 2)
def test_gradient_of_the_evidence(request, kernel, gaps, labels, rng):
    process, votes = make(kernel), request.getfixturevalue(labels)
    if gaps:
        votes = with_gaps(votes, rng)
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(votes)[0], process.vector
    )
    assert_allclose(process.evidence(votes)[1], numeric, rtol=1e-6, atol=1e-6)


def test_gradient_of_the_prior():
    process = make(RBF([0.5, 3.0]).bind(2), shared_scale=1.2)
    numeric = numerical_gradient(lambda x: process.with_vector(x).log_prior()[0], process.vector)
    assert_allclose(process.log_prior()[1], numeric, rtol=1e-8, atol=1e-8)


def test_prior_of_length_scales_that_differ_is_that_of_cauchy():
    """Around the shared one, whose own prior counts once."""
    shared = make(RBF(1.2, isotropic=True).bind(2))
    freed = free_length_scales(shared)
    spread = stats.cauchy(scale=0.3)
    rise = freed.log_prior()[0] - shared.log_prior()[0]
    assert_allclose(rise, 2.0 * spread.logpdf(0.0))
    apart = np.log([0.5 / 1.2, 3.0 / 1.2])
    moved = replace(freed, process=make(RBF([0.5, 3.0]).bind(2)).process)
    normal = stats.norm(np.log(2.0), 2.0)
    others = normal.logpdf(np.log([0.5, 3.0])).sum() - 2.0 * normal.logpdf(np.log(1.2))
    rise = moved.log_prior()[0] - shared.log_prior()[0]
    assert_allclose(rise, spread.logpdf(apart).sum() + others)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_place_is_predicted_as_by_a_dense_process(votes, kernel, rng):
    process, x = make(kernel), rng.standard_normal(2)
    k = kernel(votes.X, x[None])[:, 0]
    K, counts, frequencies, noise = known(process, votes)
    own = float(kernel.diag(x[None])[0])
    mean, variance = oracle.predict_place(K, k, own, counts, frequencies, noise)
    found = process.predict_from_neighbours(votes, x)
    assert_allclose(found, [*mean, variance], rtol=1e-5, atol=1e-7)
    exact = process.factorise(votes).moments(x[None])
    assert_allclose(np.append(*exact), found, rtol=1e-8, atol=1e-10)


def test_one_matrix_that_cannot_be_factorised(votes, rng):
    """A prediction from equal places without noise gets the jitter that it takes."""
    equal = Votes.of(np.ones((15, 2)), votes.counts * 1e9)
    process = replace(make(KERNELS[0]), process=Process(KERNELS[0], 1e-7, np.inf))
    found = process.predict_from_neighbours(equal, rng.standard_normal(2))
    assert np.isfinite(found).all()
    assert found[-1] >= 0.0


def test_equal_places_are_one_place_with_more_votes(rng):
    """What merging rows relies on."""
    X, counts = rng.standard_normal((4, 2)), np.eye(3)[[0, 1, 2, 0]]
    repeated = Votes.of(X[[0, 0, 1, 2, 3]], counts[[0, 1, 1, 2, 3]])
    merged = counts.copy()
    merged[0] += counts[1]
    places, process = rng.standard_normal((5, 2)), make(KERNELS[0])
    for a, b in zip(
        process.factorise(repeated).moments(places),
        process.factorise(Votes.of(X, merged)).moments(places),
        strict=True,
    ):
        assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_lines_do_not_read_labels_off_the_frequencies(rng):
    """Of places that are all equally far apart, whose labels nobody can know."""
    labels = rng.integers(0, 2, 40)
    votes = Votes.of(np.eye(40) - 1.0 / 40, np.eye(2)[labels])
    process = start_class_process(Linear(np.full(40, 0.2), offset=1e-3), 40)
    told = process.leave_out(replace(votes, total=np.inf))[0][np.arange(40), labels]
    known = process.leave_out(votes)[0][np.arange(40), labels]
    assert told.min() > 0.25
    assert np.abs(known).max() < 0.1
