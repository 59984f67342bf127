"""The evidence of an exact process: densely, of literal copies, and its slopes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skvbgp._core.evidence import log_evidence, own_evidence, own_log_evidence, scan_noises
from tests.derivatives import numerical_gradient
from tests.oracles.decoupled import weighted_log_evidence

N, LOG_NOISE = 6, -0.7
REPETITIONS = np.array([1, 3, 2, 1, 1, 2])
FRACTIONS = np.array([0.3, 2.0, 1.0, 0.01, 5.0, 0.7])

functions = pytest.mark.parametrize("shape", [(N,), (N, 3)], ids=["one", "several"])
relative = pytest.mark.parametrize("relative", [False, True])


@pytest.fixture
def K(rng):
    root = rng.standard_normal((N, N))
    return root @ root.T


@functions
@relative
def test_evidence_of_rows_that_are_there_once(K, rng, shape, relative):
    y, noise = rng.standard_normal(shape), np.exp(LOG_NOISE)
    C = (noise if relative else 1.0) * K + noise * np.eye(N)
    expected = np.sum(multivariate_normal(cov=C).logpdf(y.T))
    for counts in (None, np.ones(N)):
        value, *_ = log_evidence(K, y, LOG_NOISE, counts, relative=relative)
        assert_allclose(value, expected, rtol=1e-12)


@functions
@relative
def test_evidence_of_copies(K, rng, shape, relative):
    y, noise = rng.standard_normal(shape), np.exp(LOG_NOISE)
    index = np.repeat(np.arange(N), REPETITIONS)
    C = (noise if relative else 1.0) * K[np.ix_(index, index)] + noise * np.eye(len(index))
    expected = np.sum(multivariate_normal(cov=C).logpdf(y[index].T))
    counts = REPETITIONS.astype(float)
    assert_allclose(log_evidence(K, y, LOG_NOISE, counts, relative=relative)[0], expected)


@functions
@relative
@pytest.mark.parametrize("counts", [None, FRACTIONS], ids=["once", "fractions"])
def test_evidence_of_fractions_and_its_gradients(K, rng, shape, relative, counts):
    y, noise = rng.standard_normal(shape), np.exp(LOG_NOISE)
    value, dK, d_log_noise = log_evidence(K, y, LOG_NOISE, counts, relative=relative)
    weight = np.ones(N) if counts is None else counts
    scaled = noise * K if relative else K
    columns = y.reshape(N, -1).T
    expected = sum(weighted_log_evidence(column, scaled, noise, weight) for column in columns)
    assert_allclose(value, expected, rtol=1e-10)
    direction = rng.standard_normal((N, N))
    direction = direction + direction.T

    def along(x):
        return log_evidence(K + x[0] * direction, y, x[1], counts, relative=relative)[0]

    slopes = numerical_gradient(along, np.array([0.0, LOG_NOISE]))
    assert_allclose([np.vdot(dK, direction), d_log_noise], slopes, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("counts", [None, FRACTIONS], ids=["once", "fractions"])
def test_known_noise_and_its_gradients(K, rng, counts):
    y, known = rng.standard_normal(N), rng.uniform(0.0, 2.0, N)
    value, dK, d_log_noise = log_evidence(K, y, LOG_NOISE, counts, known)
    own, weight = np.exp(LOG_NOISE) + known, np.ones(N) if counts is None else counts
    assert_allclose(value, weighted_log_evidence(y, K, own, weight), rtol=1e-10)
    direction = rng.standard_normal((N, N))
    direction = direction + direction.T

    def along(x):
        return log_evidence(K + x[0] * direction, y, x[1], counts, known)[0]

    slopes = numerical_gradient(along, np.array([0.0, LOG_NOISE]))
    assert_allclose([np.vdot(dK, direction), d_log_noise], slopes, rtol=1e-7, atol=1e-8)
    by_row = numerical_gradient(lambda own: own_evidence(K, y, own, counts)[0], own)
    assert_allclose(own_evidence(K, y, own, counts)[2], by_row, rtol=1e-7, atol=1e-8)
    tried = np.arange(-8.0, 1.0)
    values = [log_evidence(K, y, log_noise, counts, known)[0] for log_noise in tried]
    assert_allclose(scan_noises(K, y, counts, known), [max(values), tried[np.argmax(values)]])


@functions
@pytest.mark.parametrize("counts", [None, FRACTIONS], ids=["once", "fractions"])
def test_scan_finds_the_best_noise(K, rng, shape, counts):
    y = rng.standard_normal(shape)
    tried = np.arange(-8.0, 1.0)
    values = [log_evidence(K, y, log_noise, counts)[0] for log_noise in tried]
    value, log_noise = scan_noises(K, y, counts)
    assert log_noise == tried[np.argmax(values)]
    assert_allclose(value, max(values), rtol=1e-8)


@pytest.mark.parametrize("counts", [None, FRACTIONS], ids=["once", "fractions"])
@pytest.mark.parametrize("singular", [False, True])
def test_evidence_without_gradients(K, rng, counts, singular):
    """By another factorisation, and where rounding asks for jitter by the same one."""
    y, own = rng.standard_normal(N), 0.1 * rng.uniform(0.5, 1.0, N)
    if singular:
        K, own = np.ones((N, N)), 1e-18 * own
    value, *_ = own_evidence(K, y, own, counts)
    assert_allclose(own_log_evidence(K, y, own, counts), value, rtol=1e-12)
