"""The covariance of several outputs: its gradients, and the process that it is part of."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import expm, sqrtm

from skvbgp.gp._coregion import Coregion, JointCovariance
from skvbgp.gp._neighbours import measure_stack
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import weigh_inputs
from skvbgp.kernels import RBF, Matern
from tests.derivatives import numerical_gradient
from tests.gp.cases import predict_from_neighbours
from tests.oracles import gp as oracle


def make_coregion(t, seed=0, size=0.8):
    start = Coregion.start(t)
    return start.with_vector(size * np.random.default_rng(seed).standard_normal(len(start.vector)))


def make_rows(rng, n, t, d=2):
    """Rows of random outputs, with their indicators and the outputs themselves."""
    outputs = rng.permutation(np.arange(n) % t)
    return np.hstack([rng.standard_normal((n, d)), np.eye(t)[outputs]]), outputs


def make_process(t, gaussian, n_gaps=0):
    kernel = (1.3 * RBF([0.8, 1.5])).bind(2)
    process = start_process(kernel, gaussian=gaussian, n_gaps=n_gaps, n_outputs=t)
    return replace(process, coregion=make_coregion(t))


@pytest.mark.parametrize("t", [2, 3, 5])
def test_covariance_is_the_exponential_of_what_is_free(t):
    coregion = make_coregion(t)
    S = np.zeros((t, t))
    S[np.triu_indices(t)] = coregion.entries
    S = S + np.triu(S, 1).T
    assert_allclose(coregion.B, expm(S), rtol=1e-10)
    assert_allclose(coregion.root, sqrtm(expm(S)), rtol=1e-8, atol=1e-10)
    assert_array_equal(Coregion.start(t).B, np.eye(t))


def test_entry_of_two_equal_outputs_is_fishers_z():
    B = Coregion((0.0, 1.2, 0.0), (0.0, 0.0)).B
    assert_allclose(np.arctanh(B[0, 1] / B[0, 0]), 1.2)


@pytest.mark.parametrize("size", [0.0, 0.8, 2.0])
def test_gradient_of_the_covariance(rng, size):
    """Also where eigenvalues are equal."""
    coregion, G = make_coregion(3, size=size), rng.standard_normal((3, 3))
    p = len(coregion.entries)

    def value(entries):
        return np.sum(G * coregion.with_vector(np.append(entries, np.zeros(3))).B)

    numeric = numerical_gradient(value, np.array(coregion.entries))
    assert_allclose(coregion.vjp(G), numeric, rtol=1e-8, atol=1e-8)
    assert len(coregion.vector) == p + 3 == len(coregion.bounds) == len(coregion.prior)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("t", [2, 3])
@pytest.mark.parametrize("n_gaps", [0, 1])
@pytest.mark.every_nth("gaussian", 2)
@pytest.mark.every_nth("t", 2)
def test_gradient_of_the_evidence(rng, t, gaussian, n_gaps):
    """Also with weights, known variances and uncertain entries."""
    process, known = make_process(t, gaussian, n_gaps), None
    X, _ = make_rows(rng, 14, t)
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(14)
    if n_gaps:
        known = RowNoise(rng.uniform(0.5, 2.0, 14), rng.uniform(size=14))
        known = replace(known, inputs=rng.exponential(size=(14, n_gaps)))
    numeric = numerical_gradient(
        lambda x: process.with_vector(x).evidence(X, y, known)[0], process.vector
    )
    assert_allclose(process.evidence(X, y, known)[1], numeric, rtol=1e-5, atol=1e-6)
    numeric = numerical_gradient(lambda x: process.with_vector(x).log_prior()[0], process.vector)
    assert_allclose(process.log_prior()[1], numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("t", [2, 3])
@pytest.mark.parametrize("most", [0, 512])
def test_evidence_of_prepared_rows(rng, monkeypatch, t, most):
    """By pairs of inputs, and of more rows without."""
    monkeypatch.setattr("skvbgp.kernels._pairs._FEW_ROWS", most)
    process, (X, _), y = make_process(t, False), make_rows(rng, 14, t), rng.standard_normal(14)
    value, gradient = process.evidence(X, y)
    (prepared,) = process.prepare([(X, y, None)])
    assert_allclose(process.log_evidence(*prepared), value, rtol=1e-10)
    assert_allclose(process.evidence(*prepared)[1], gradient, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("t", [2, 3])
def test_gradient_of_the_evidence_in_the_inputs(rng, t):
    """It is zero in the indicators, which are given."""
    process, (X, _), y = make_process(t, False), make_rows(rng, 9, t), rng.standard_normal(9)
    gradient = process.differentiate(X, y, None)[2]
    numeric = numerical_gradient(
        lambda inputs: process.log_evidence(np.hstack([inputs, X[:, 2:]]), y), X[:, :2]
    )
    assert_allclose(gradient[:, :2], numeric, rtol=1e-6, atol=1e-7)
    assert not np.any(gradient[:, 2:])


def test_evidence_and_moments_are_those_of_the_dense_model(rng):
    process = make_process(3, gaussian=True)
    X, outputs = make_rows(rng, 18, 3)
    y = np.where(np.arange(18) < 12, rng.standard_normal(18), np.nan)
    seen = ~np.isnan(y)
    k = process.kernel(X[:, :2])
    given = process.factorise(X[seen], y[seen])
    evidence, mean, covariance = oracle.predict_outputs(
        k, process.coregion.B, outputs, y, process.noise * process.coregion.factors
    )
    moments = given.moments(X[~seen])
    assert_allclose(given.scale.evidence, evidence, rtol=1e-6)
    assert_allclose(moments.mean, mean, rtol=1e-5, atol=1e-7)
    assert_allclose(moments.variance, np.diagonal(covariance), rtol=1e-5, atol=1e-7)
    assert_allclose(given.covariance(X[~seen]), covariance, rtol=1e-5, atol=1e-6)


def test_prediction_from_neighbours_is_that_of_the_oracle(rng):
    """The uncertain scale is one of all outputs."""
    process = make_process(2, gaussian=False)
    X, outputs = make_rows(rng, 9, 2)
    y, noises = rng.standard_normal(8), process.noise * process.coregion.factors
    known = process.add_indicators(X[:-1], None)
    found = predict_from_neighbours([process], X[:-1], y, X[-1], known)[0]
    dense = oracle.covary(process.kernel(X[:, :2]), process.coregion.B, outputs)
    noise = noises[outputs[:-1]]
    mean, variance, spread_noise, evidence = oracle.predict_from_neighbours(
        dense[:-1, :-1] + np.diag(noise), dense[-1, :-1], dense[-1, -1], y, noise, process.dof, 16.0
    )
    common = spread_noise[0] / process.coregion.factors[outputs[0]]  # that of no output yet
    assert_allclose(found, [mean, variance, common, evidence], rtol=1e-6)


def test_covariance_of_rows(rng):
    """All that a kernel offers, from the literal covariance and its differences."""
    covariance = JointCovariance(Matern([1.0, 2.0], nu=2.5).bind(2), make_coregion(3))
    X, outputs = make_rows(rng, 7, 3)
    dense = oracle.covary(covariance.kernel(X[:, :2]), covariance.coregion.B, outputs)
    assert_allclose(covariance(X), dense, rtol=1e-12)
    assert_allclose(covariance(X[:3], X), dense[:3], rtol=1e-12)
    assert_allclose(covariance.diag(X), np.diagonal(dense), rtol=1e-12)
    stack = measure_stack(covariance, np.stack([X, X[::-1]]))
    assert_allclose(np.tril(stack), np.tril([dense, dense[::-1, ::-1]]), rtol=1e-12)
    slopes = covariance.gradient(X[0], X)
    for i in range(7):
        numeric = numerical_gradient(
            lambda x, i=i: covariance(np.append(x, X[0, 2:])[None], X[i : i + 1]).item(), X[0, :2]
        )
        assert_allclose(slopes[i], [*numeric, 0.0, 0.0, 0.0], rtol=1e-8, atol=1e-10)
    own = np.diagonal(covariance.coregion.B)[outputs, None]
    curvature = own * covariance.kernel.curvature(X[:, :2])
    assert_allclose(covariance.curvature(X), np.hstack([curvature, np.zeros((7, 3))]), rtol=1e-12)


def test_prior_at_a_place_has_the_variance_of_the_kernel(rng):
    process, (X, _) = make_process(2, gaussian=True), make_rows(rng, 5, 2)
    assert_allclose(process.average_prior(X), 1.3 * process.coregion.B)


@pytest.mark.parametrize("entry", [0.9, -0.9])
def test_outputs_are_as_far_apart_as_their_correlation_says(entry):
    coregion = Coregion((0.3, entry, -0.2), (0.0, 0.0))
    B = coregion.B
    expected = -np.log(B[0, 1] ** 2 / B[0, 0] / B[1, 1])
    assert_allclose(np.sum(coregion.distances**2), expected, rtol=1e-10)
    covariance = JointCovariance(RBF([2.0, 4.0]).bind(2), coregion)
    weights = weigh_inputs(covariance, 4)
    assert_allclose(weights, [0.5, 0.25, *coregion.distances])
    places = np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]])
    distance = np.sum(((places[0] - places[1]) * weights) ** 2)
    correlation = covariance(places)[0, 1] / np.sqrt(np.prod(covariance.diag(places)))
    assert_allclose(distance, -2.0 * np.log(abs(correlation)), rtol=1e-10)


def test_distances_of_outputs_without_correlation_are_finite():
    near, far = Coregion((0.0, 1.0, 0.0, 0.0, 0.0, 0.0), (0.0,) * 3), Coregion.start(3)
    assert near.distances[2] > 2.0 * near.distances[:2].max()
    assert_allclose(far.distances, far.distances[0])
    assert 0.0 < far.distances[0] < 10.0
