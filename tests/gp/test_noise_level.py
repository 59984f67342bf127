"""Noise whose variance depends on what is predicted."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.gp import _noise_level
from skvbgp.gp._belief import tell_noises
from skvbgp.gp._coregion import Coregion
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._noise_level import NoiseLevel, learn_level, score_level
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp.search._sample import Sample, Samples
from skvbgp.kernels import RBF
from tests.derivatives import numerical_gradient
from tests.gp.cases import small
from tests.oracles import gp as oracle


def draw(rng, n, *, slope=0.8):
    """Means, variances and squared errors of rows whose noise rises with the mean."""
    mean, latent, noise = rng.standard_normal(n), rng.uniform(0.0, 0.1, n), np.full(n, 0.5)
    total = latent + noise * np.exp(slope * mean)
    return mean, latent, noise, total * rng.standard_normal(n) ** 2


def test_objective_and_its_gradient(rng):
    t, latent, noise, squares = draw(rng, 20)
    x, weight = np.array([0.3, -0.4]), rng.uniform(0.5, 2.0, 20)
    value, gradient = score_level(x, t, latent, noise, squares, weight)
    given = t, latent, noise, squares, weight, _noise_level._PRECISION
    assert_allclose(value, oracle.score_noise_level(*x, *given))
    numeric = numerical_gradient(lambda x: oracle.score_noise_level(*x, *given), x)
    assert_allclose(gradient, numeric, rtol=1e-7)


def test_what_is_found(rng):
    mean, latent, noise, squares = draw(rng, 3000)
    found = learn_level(3.0 * mean + 1.0, latent, noise, squares)
    assert_allclose([found.centre, found.unit], [1.0, 3.0], atol=0.15)
    assert_allclose(found.slope, 0.8, atol=0.1)
    inside = np.abs(mean) < 2.0
    expected = np.exp(0.8 * mean[inside])
    ratio = found.factor(3.0 * mean[inside] + 1.0) / expected
    assert_allclose(ratio / ratio.mean(), 1.0, atol=0.3)


def test_the_size_of_all_errors_does_not_matter(rng):
    """Few rows have been judged otherwise: only what differs between places is learned."""
    mean, latent, noise, squares = draw(rng, 200)
    small, large = (learn_level(mean, latent, noise, s * squares) for s in (0.01, 100.0))
    assert_allclose(small, large, rtol=1e-4)


def test_little_is_learned_from_few_rows(rng):
    assert abs(learn_level(*draw(rng, 5)).slope) < 0.5


def test_weights_are_repetitions(rng):
    rows, count = draw(rng, 60), rng.integers(0, 4, 60)
    weighted = learn_level(*rows, count.astype(float))
    repeated = learn_level(*(np.repeat(part, count) for part in rows))
    assert_allclose(weighted, repeated, rtol=1e-4, atol=1e-6)


def test_predictions_or_errors_that_are_the_same(rng):
    mean, latent, noise, squares = draw(rng, 20)
    assert learn_level(np.zeros(20), latent, noise, squares) is None
    assert learn_level(mean, latent, noise, np.zeros(20)) is None


def test_it_is_bounded_beyond_the_rows():
    level = NoiseLevel(1.0, 2.0, 0.1, 0.5)
    assert_allclose(level.factor(np.array([-99.0, 2.0, 99.0])), np.exp([-0.9, 0.35, 1.1]))


@pytest.mark.parametrize(
    "options, may",
    [
        ({}, True),
        ({"noise": RowNoise(np.full(4, 2.0), np.zeros(4))}, True),
        ({"noise": RowNoise(np.ones(4), np.full(4, 0.1))}, False),
        ({"n_outputs": 1}, True),
        ({"y": np.zeros((4, 2))}, False),
    ],
)
def test_when_it_may_vary(options, may, rng):
    sample = Sample(**{"X": np.zeros((4, 1)), "y": np.zeros(4), "rng": rng, **options})
    assert sample.noise_may_vary is may
    assert not Samples([sample, sample]).noise_may_vary


def make_rows(n=300):
    """Noise whose standard deviation is a fifth of the function."""
    rng = np.random.RandomState(3)
    X = rng.uniform(-2.0, 2.0, (n, 1))
    f = np.exp(X[:, 0])
    return X, f * (1.0 + 0.2 * rng.standard_normal(n))


def test_intervals_are_wider_where_there_is_more_noise():
    X, y = make_rows()
    model, places = small(max_iter=5).fit(X, y), np.array([[-1.5], [1.5]])
    low, high = model.predict(places, return_std=True)[1]
    assert high > 3.0 * low
    inside = np.abs(y - model.predict(X)) < 1.96 * model.predict(X, return_std=True)[1]
    assert min(inside[X[:, 0] < 0.0].mean(), inside[X[:, 0] > 0.0].mean()) > 0.88


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.thorough
def test_outputs_have_levels_of_their_own():
    """That of the first rises with the function, that of the second falls, the third's is even."""
    X, y = make_rows(70)
    rng = np.random.RandomState(5)
    Y = np.column_stack([y, 10.0 - y, np.exp(X[:, 0]) + 0.3 * rng.standard_normal(70)])
    model = small(output_covariance="learned").fit(X, Y)
    model._state = replace(model._state, apart=(None,) * 3)
    low, high = model.predict(np.array([[-1.5], [1.5]]), return_std=True)[1]
    assert np.all((high / low)[:2] > 2.0)
    assert 0.6 < (high / low)[2] < 1.6
    known = small(output_covariance="learned").fit(X[:20], Y[:20], y_var=0.01)._state.model.mixture
    assert [noise.level for noise in known.noises] == [None] * 3


def test_noise_of_outputs(rng):
    """Each is learned from the rows of the output, with what is added to all."""
    coregion = replace(Coregion.start(2), log_factors=(0.5, -0.5))
    processes = tuple(Process(RBF(one), 0.1, np.inf, coregion=coregion) for one in (1.0, 2.0))
    output, weight = np.arange(60) % 2, rng.uniform(0.5, 2.0, 60)
    parts = LocalMoments(*rng.uniform(0.1, 0.3, (4, 60, 2)))
    y = rng.standard_normal(60)
    before = Mixture(processes, np.array([0.0, -1.0]), 0.5, extra_noise=0.2)
    mixture = tell_noises(before, Predicted(parts, y, weight), output, varies=True)
    assert mixture.extra_noise == 0.0
    assert [noise.extra for noise in mixture.noises] == [0.2, 0.2]
    for j, noise in enumerate(mixture.noises):
        mine = parts.take(output == j)
        mean, total = before.mix(mine, include_noise=True)
        latent = before.mix(mine, include_noise=False)[1]
        squares = (y[output == j] - mean) ** 2
        expected = learn_level(mean, latent, total - latent, squares, weight[output == j])
        assert_allclose(noise.level, expected)
    mean = before.mix(parts, include_noise=False)[0]
    told = mixture.add_output_noise(parts, output)
    for c in range(2):
        expected = oracle.spread_noise(parts.noise[:, c], mean, output, mixture.noises)
        assert_allclose(told.noise[:, c], expected)
    assert_allclose(told.variance, parts.variance)
    plain = tell_noises(before, Predicted(parts, y, weight), output, varies=False)
    assert_allclose(plain.add_output_noise(parts, output).noise, parts.noise + 0.2)


def test_known_noise_does_not_depend_on_predictions():
    X, y = make_rows(60)
    model = small().fit(X, y, y_var=0.01)
    noise = [model.predict(X, return_std=True, include_noise=n)[1] ** 2 for n in (True, False)]
    assert_allclose(noise[0] - noise[1], (noise[0] - noise[1])[0])


def test_known_noise_of_rows_that_are_left_out_is_what_it_is():
    """It adds to noise whose level depends on predictions, and does not depend on them itself."""
    X, y = make_rows(60)
    model = small().fit(X[:40], y[:40])
    assert model._state.mixture.noise_level is not None
    variance = (100.0 * y.std()) ** 2
    model.partial_fit(X[40:], y[40:], y_var=variance)
    _, std = model.loo_predict()
    _, expected = model.predict(X[40:], return_std=True, y_var=variance)
    assert_allclose(std[40:], np.sqrt(model._state.mixture.calibration) * expected, rtol=1e-3)


def test_it_is_the_noise_that_differs():
    """What is uncertain of the function is the same, but for one factor."""
    X, y = make_rows(60)
    models = small().fit(X, y, y_var=1e-12), small().fit(X, y)
    stds = [model.predict(X, return_std=True, include_noise=False)[1] for model in models]
    assert_allclose(stds[0] / stds[1], np.mean(stds[0] / stds[1]), rtol=1e-4)


def test_near_rows_tell_it_themselves():
    X, y = make_rows(100)
    assert small(n_neighbors=40).fit(X, y)._state.mixture.noise_level is None
    assert small().fit(X, y)._state.mixture.noise_level is not None
