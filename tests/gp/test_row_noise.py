"""Weights of rows, and known variances of their noise, as a user gives them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from skvbgp import VBGPRegressor
from skvbgp.gp._row_noise import RowNoise, _may_repeat, discount_copies, merge_rows
from skvbgp.gp._rows import Rows
from skvbgp.kernels import RBF, Matern, White
from tests.gp.cases import make_data, small
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNEL = 2.0 * Matern([2.0, 3.0], nu=1.5)
FIXED = {"learn_hyperparameters": False}


def assert_same(a, b, X, rtol=1e-8):
    for one, other in zip(a.predict(X, True), b.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=rtol)


@pytest.mark.parametrize("n_neighbors", ["auto", 12])
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.every_nth("n_neighbors", 2)
def test_a_weight_is_a_repetition_and_zero_leaves_out(rng, n_neighbors, learn):
    X, y = make_data(40)
    y_var = rng.choice([0.0, 0.5], 40)
    weight = rng.integers(0, 4, 40)
    model = small(KERNEL, n_neighbors=n_neighbors, learn_hyperparameters=learn, max_iter=3)
    repeated = rng.permutation(np.repeat(np.arange(40), weight))
    expected = clone(model).fit(X[repeated], y[repeated], y_var=y_var[repeated])
    model.fit(X, y, sample_weight=weight, y_var=y_var)
    assert_same(model, expected, X + 0.1)
    assert_allclose(model.noise_variance_, expected.noise_variance_)
    assert_allclose(model.log_predictive_density_, expected.log_predictive_density_)


def test_a_weight_is_a_repetition_in_a_stream():
    """In which equal rows of different calls are not merged."""
    X, y = make_data(40)
    weight = np.repeat([1, 2, 3, 2], 10)
    model = small(KERNEL, **FIXED).fit(X[:15], y[:15], sample_weight=weight[:15])
    model.partial_fit(X[15:], y[15:], sample_weight=weight[15:])
    stream = small(KERNEL, **FIXED)
    for times in (1, 2, 3):
        stream.partial_fit(X[weight >= times], y[weight >= times])
    assert_same(model, stream, X + 0.1, rtol=1e-6)
    assert stream.n_samples_seen_ == 80
    assert model.n_samples_seen_ == 40


def test_fractions_count_as_such():
    """Rows of weight 1/2, each of them twice."""
    X, y = make_data(30)
    model = small(KERNEL, n_neighbors=12)
    half = clone(model).fit(np.tile(X, (2, 1)), np.tile(y, 2), sample_weight=0.5)
    assert_same(half, model.fit(X, y, sample_weight=1.0 + 1e-12 * np.arange(30)), X, rtol=1e-5)
    assert_array_equal(
        clone(model).fit(X, y).predict(X), clone(model).fit(X, y, sample_weight=1.0).predict(X)
    )


def test_known_noise_is_scikit_learns_alpha(rng):
    X, y = make_data(30)
    y_var = rng.uniform(0.0, 2.0, 30)
    model = small(1.0 * RBF([2.0, 3.0]), **FIXED).fit(X, y, y_var=y_var)
    kernel = 1.0 * sklearn_kernels.RBF([2.0, 3.0])
    alpha = 0.1 + y_var / np.var(y)
    exact = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None, normalize_y=True)
    mean, covariance = exact.fit(X, y).predict(X + 0.2, return_cov=True)
    found_mean, found = model.predict(X + 0.2, return_cov=True, include_noise=False)
    assert_allclose(found_mean, mean, rtol=1e-6)
    assert_allclose(found, covariance, atol=1e-6 * covariance.max())


def test_what_is_known_is_not_learned():
    """Rows of two qualities: the learned noise is that of the good ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (150, 1))
    y_var = np.where(rng.uniform(size=150) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(150) + np.sqrt(y_var) * rng.standard_normal(150)
    places = np.linspace(-3.0, 3.0, 50)[:, None]
    model = small(1.0 * RBF(), n_neighbors=40, max_iter=5)
    told = clone(model).fit(X, y, y_var=y_var)
    model.fit(X, y)
    assert told.noise_variance_ < 0.05 < 0.3 < model.noise_variance_
    errors = [np.mean((m.predict(places) - np.sin(places[:, 0])) ** 2) for m in (told, model)]
    assert errors[0] < 0.5 * errors[1]


def test_noise_beyond_the_range_of_numbers_is_refused():
    X, y = make_data(30)
    for noise in ({"y_var": 1e200}, {"sample_weight": 1e-300}, {"sample_weight": 1e200}):
        with pytest.raises(ValueError, match="y_var|sample_weight"):
            small(KERNEL).fit(X, y, **noise)
    with pytest.raises(ValueError, match="zero"):
        small(KERNEL).fit(X, y, sample_weight=np.zeros(30))


def test_white_noise_of_a_kernel_is_another_in_each_row():
    """So rows are not merged, and have no weights."""
    X, y = make_data(20)
    twice = np.tile(X, (2, 1)), np.tile(y, 2)
    model = small(KERNEL + White(0.5), **FIXED)
    kernel = 2.0 * sklearn_kernels.Matern([2.0, 3.0], nu=1.5)
    exact = GaussianProcessRegressor(kernel, alpha=0.6, optimizer=None, normalize_y=True)
    assert_allclose(model.fit(*twice).predict(X), exact.fit(*twice).predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="White"):
        model.fit(X, y, sample_weight=2.0)


def test_rows_in_chunks_keep_their_noise(rng):
    X, y = rng.standard_normal((9, 2)), np.arange(9.0)
    noise = RowNoise(np.arange(1.0, 10.0), np.arange(9.0))
    rows = Rows().plus(X[:5], y[:5]).plus(X[5:8], y[5:8], noise[5:8]).plus(X[8:], y[8:], noise[8:])
    assert_array_equal(rows.weight, [1.0] * 5 + [6.0, 7.0, 8.0, 9.0])
    assert_array_equal(rows.noise.variance, [0.0] * 5 + [5.0, 6.0, 7.0, 8.0])
    merged = rows.joined(rows).merged()
    assert (len(merged), merged.n_seen) == (9, 18)
    assert_array_equal(merged.weight[np.argsort(merged.y)], 2.0 * rows.weight)


def test_no_rows_have_gaps_in_the_same_inputs():
    none = replace(RowNoise.plain(0), inputs=np.zeros((0, 2)))
    assert RowNoise.of(none, 0) is none
    assert RowNoise.joined([(none, 0), (RowNoise.plain(3), 3)]).inputs.shape == (3, 2)


def test_rows_without_gaps_have_none_behind_rows_with_some():
    gaps = RowNoise(np.ones(2), np.zeros(2), np.array([[0.3, 0.0], [0.0, 0.7]]))
    joined = RowNoise.joined([(gaps, 2), (RowNoise.plain(1), 1), (None, 1)])
    assert_array_equal(joined.inputs, [[0.3, 0.0], [0.0, 0.7], [0.0, 0.0], [0.0, 0.0]])


def test_rows_that_differ_are_told_apart_without_a_copy(rng):
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    assert not _may_repeat(X, y)
    X[7], y[7] = X[40], y[40]
    assert _may_repeat(X, y)
    X[0] = 1e308
    assert _may_repeat(X[:5], y[:5])  # beyond what the numbers can tell: looked at in full


@pytest.mark.parametrize("n_neighbors", [200, 40])
@pytest.mark.parametrize("kind", ["few copies", "bootstrap", "copies beside measurements"])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.every_nth("kind", 3)
def test_copies_of_rows_do_not_take_the_noise_away(kind, n_neighbors):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, (80, 3))
    if kind == "copies beside measurements":
        X[40:] = X[:40]
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 / 3.0
    y = f + 0.3 * rng.standard_normal(80)
    index = rng.integers(0, 80, 80) if kind == "bootstrap" else np.append(np.arange(80), [0, 1, 2])
    model = VBGPRegressor(Matern(), n_neighbors=n_neighbors, random_state=0).fit(X[index], y[index])
    assert 0.03 < model.noise_variance_ < 0.2  # .09; 1e-7 where copies are taken for measurements
    mean, std = model.predict(X, return_std=True)
    again = f + 0.3 * rng.standard_normal(80)
    assert np.mean(np.abs(again - mean) < 2.0 * std) > 0.8


def merge(X, y):
    X, y, noise, _ = merge_rows(X, y, np.ones(len(y)), np.zeros(len(y)), merges=True)
    return X, y, noise


@pytest.mark.parametrize("has_few_values", [False, True])
@pytest.mark.parametrize("is_bootstrap", [False, True])
def test_copies_are_told_from_measurements_that_agree(rng, has_few_values, is_bootstrap):
    """By how often rows agree at one place and elsewhere; some differ, so that all count.

    Few copies beside many measurements are taken for such.
    """
    X = np.repeat(rng.standard_normal((300, 2)), 2, axis=0)
    y = np.repeat(rng.standard_normal(300), 2) + 0.3 * rng.standard_normal(600)
    if has_few_values:
        y = np.round(y)  # most rows at one place agree
    if is_bootstrap:
        X[::2][6:] = rng.standard_normal((294, 2))  # most places had one row
        index = rng.integers(0, 600, 600)
        X, y = X[index], y[index]
    rows = merge(np.append(X, X[:1], axis=0), np.append(y, y[:1]))
    found = discount_copies(*rows)
    assert found.can_part == (not is_bootstrap)
    assert_array_equal(found.weight, rows[2].weight)
    others = np.zeros(len(found)) if is_bootstrap else np.maximum(found.weight - 1.0, 0.0)
    assert_array_equal(found.others, others)
    assert_array_equal(found[3:7].others, others[3:7])
    assert found.weight.max() > 1.0


@pytest.mark.parametrize("n_values", [12, 40])
@pytest.mark.every_nth("n_values", 2)
def test_odds_of_copies_are_those_of_all_pairs(rng, n_values):
    """Rows are copied, or not, so often that the rule goes either way."""
    decisions = []
    for _ in range(150):
        X = rng.integers(0, 15, 30).astype(float)[:, None]
        y = rng.integers(0, n_values, 30) * 1.0
        index = rng.choice(rng.choice(30, rng.integers(4, 30), replace=False), 30)
        X, y, noise = merge(X[index], y[index])
        if len(np.unique(X)) == len(X) or noise is None:
            continue
        copies = np.repeat(np.arange(len(y)), noise.weight.astype(int))
        (agree, differ), (agree_apart, differ_apart) = oracle.compare_pairs(X[copies], y[copies])
        expected = agree > differ and agree * differ_apart > 30 * differ * agree_apart
        assert discount_copies(X, y, noise).can_part == (not expected)
        decisions.append(expected)
    assert 0.05 < np.mean(decisions) < 0.95


def test_rows_at_one_place_and_weights_of_other_rows(rng):
    """At one place nothing says what agrees by chance; weights alone are copies."""
    weight, none = rng.uniform(0.5, 3.0, 20), np.zeros(20)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    apart = discount_copies(X, y, RowNoise(weight, none))
    assert_array_equal(apart.weight, np.minimum(weight, 1.0))
    for _ in range(20):  # whatever is rounded
        uneven = RowNoise(np.append(1000.0 * rng.random(), rng.random(19)), none)
        assert discount_copies(np.zeros((20, 2)), y, uneven).can_part
    least = RowNoise(np.minimum(weight, 1.0), none)
    assert discount_copies(X, y, least) is least
    assert discount_copies(X, y, None) is None


@pytest.mark.parametrize("n", [150, 600])
def test_values_that_recur_are_as_sure_as_others(n):
    """Few values of X and y: most rows are equal to another one."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (n, 2)).astype(float)
    y = np.round(X @ [1.0, -0.5] + 0.8 * rng.standard_normal(n))
    model = VBGPRegressor(Matern(nu=1.5), random_state=0).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(std.mean(), np.std(y - mean), rtol=0.12)  # 1.3 to 2 times as large otherwise
