"""Values: against scikit-learn, at awkward inputs, and positive semi-definite."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import kernels as sk

from skvbgp.kernels import (
    RBF,
    Anova,
    Constant,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    White,
    Wiener,
)
from tests.kernels.cases import CASES, COMPOSITES, PERIODS, SCALES, inputs

SAME_AS_SKLEARN = [
    (RBF(SCALES), sk.RBF(SCALES)),
    (RBF(1.3), sk.RBF(1.3)),
    (Matern(SCALES, nu=0.5), sk.Matern(SCALES, nu=0.5)),
    (Matern(1.3, nu=1.5), sk.Matern(1.3, nu=1.5)),
    (Matern(SCALES, nu=2.5), sk.Matern(SCALES, nu=2.5)),
    (RationalQuadratic(1.3, alpha=0.7), sk.RationalQuadratic(1.3, alpha=0.7)),
    (Periodic(1.3, 2.1, isotropic=True), sk.ExpSineSquared(1.3, 2.1)),
    (Linear(offset=0.7), sk.DotProduct(0.7)),
    (Constant(1.7), sk.ConstantKernel(1.7)),
    (White(0.3), sk.WhiteKernel(0.3)),
    (2.0 * RBF(SCALES) + White(0.3), 2.0 * sk.RBF(SCALES) + sk.WhiteKernel(0.3)),
    (RBF(1.3) * (Linear() + 0.5), sk.RBF(1.3) * (sk.DotProduct() + 0.5)),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME_AS_SKLEARN, ids=repr)
def test_equals_sklearn(ours, theirs):
    X, Z = inputs(7), inputs(5, seed=1)
    assert_allclose(ours(X), theirs(X), rtol=1e-12, atol=1e-14)
    assert_allclose(ours(X, Z), theirs(X, Z), rtol=1e-12, atol=1e-14)
    assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12)


def test_periodic_is_a_product_over_the_inputs():
    X, Z = inputs(7), inputs(5, seed=1)
    expected = np.ones((7, 5))
    for i, (length_scale, period) in enumerate(zip(SCALES, PERIODS, strict=True)):
        expected *= sk.ExpSineSquared(length_scale, period)(X[:, [i]], Z[:, [i]])
    assert_allclose(Periodic(SCALES, PERIODS)(X, Z), expected, rtol=1e-12)


def test_anova_is_the_sum_over_all_sets_of_inputs():
    X, Z = inputs(7), inputs(5, seed=1)
    variances, expected = (0.5, 2.0, 0.1), np.zeros((7, 5))
    effects = [
        v / 3.0 * sk.RBF(length_scale)(X[:, [i]], Z[:, [i]])
        for i, (length_scale, v) in enumerate(zip(SCALES, variances, strict=True))
    ]
    for size in (1, 2, 3):
        expected += sum(np.prod(some, axis=0) for some in combinations(effects, size))
    assert_allclose(Anova(SCALES, variances)(X, Z), expected, rtol=1e-12)


class Doubled(RBF):
    """What a user may write."""

    def __call__(self, X, Z=None):
        return 2.0 * super().__call__(X, Z)


@pytest.mark.parametrize("Z", [None, inputs(5, seed=1)], ids=["own", "others"])
@pytest.mark.parametrize(
    "kernel",
    [*(case for case in COMPOSITES if isinstance(case, Product)), Doubled() * RBF() * RBF(0.7)],
    ids=repr,
)
def test_a_product_multiplies_its_factors(kernel, Z):
    """However many of them share an exponential."""
    X = inputs(140)  # more than a block
    values = [factor(X, Z) for factor in kernel.kernels]
    assert_allclose(kernel(X, Z), np.prod(values, axis=0), rtol=1e-12, atol=1e-14)


def test_rational_quadratic_has_a_length_scale_per_input():
    X, Z, scales = inputs(7), inputs(5, seed=1), np.asarray(SCALES)
    expected = sk.RationalQuadratic(1.0, alpha=0.7)(X / scales, Z / scales)
    assert_allclose(RationalQuadratic(SCALES, alpha=0.7)(X, Z), expected, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 99.0, 1e3, 1e5, 1e10, 1e16])
def test_rational_quadratic_tends_to_the_squared_exponential(alpha):
    X = inputs(7)
    r2 = np.sum((X[:, None] - X) ** 2, axis=2)
    expected = np.exp(-alpha * np.log1p(r2 / (2.0 * alpha)))
    assert_allclose(RationalQuadratic(1.0, alpha=alpha)(X), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_diagonal_and_shapes(kernel):
    X, Z = inputs(6), inputs(1, seed=1)
    assert_allclose(kernel.diag(X), np.diag(kernel(X)), rtol=1e-13)
    assert kernel(X, Z).shape == (6, 1)
    assert kernel(X[:0], Z).shape == (0, 1)
    assert_allclose(kernel(X), kernel(X).T, rtol=1e-14)


def test_white_noise_is_of_a_point_and_itself():
    X = inputs(3)
    assert_array_equal(White(0.3)(X), 0.3 * np.eye(3))
    assert_array_equal(White(0.3)(X, X), np.zeros((3, 3)))


STATIONARY = [RBF(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5), RationalQuadratic()]
PERIODIC = [Periodic(period=7.0), Periodic(period=7.0, isotropic=True)]


@pytest.mark.parametrize("origin", [1979.5, 1e6, -1e6])
@pytest.mark.parametrize("kernel", STATIONARY + PERIODIC, ids=repr)
def test_inputs_far_from_the_origin(kernel, origin):
    """Shifting the inputs of a stationary kernel changes nothing, to the inputs' own rounding."""
    X = np.linspace(-21.5, 21.5, 173)[:, None]  # quarters of a year, multiples of 2^-2
    Z = X[::5]
    assert_allclose(kernel(X + origin, Z + origin), kernel(X, Z), atol=1e-9)
    assert_allclose(kernel(X + origin), kernel(X), atol=1e-9)


@pytest.mark.parametrize("far", [1e6, 1e12, 1e100])
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_rows_that_are_far_away_take_nothing_from_others(kernel, far):
    X, Z = inputs(7), inputs(5, seed=1)
    with_far = np.vstack([Z, np.full((1, Z.shape[1]), far)])
    assert_allclose(kernel(X, with_far)[:, :5], kernel(X, Z), rtol=1e-9)
    assert_allclose(kernel(with_far, X)[:5], kernel(Z, X), rtol=1e-9)
    assert_allclose(kernel(with_far)[:5, :5], kernel(Z), rtol=1e-9)
    assert_allclose(kernel(X, with_far[4:])[:, 0], kernel(X, Z[4:])[:, 0], rtol=1e-9)


@pytest.mark.parametrize("kernel", STATIONARY + PERIODIC, ids=repr)
def test_equal_points_have_covariance_one(kernel):
    X = 1e3 + np.random.default_rng(0).normal(scale=1e2, size=(50, 4))
    assert_array_equal(np.diag(kernel(X)), np.ones(50))
    assert_array_equal(np.diag(kernel(X, X.copy())), np.ones(50))


def test_nearly_equal_points_keep_their_distance():
    X = 1e3 * np.random.default_rng(0).normal(size=(50, 4))
    Z = X + 1e-6
    expected = np.exp(-np.linalg.norm(X - Z, axis=1))
    assert_allclose(1.0 - np.diag(Matern(nu=0.5)(X, Z)), 1.0 - expected, rtol=1e-6)


def random_kernel(rng, depth):
    """A random sum or product of random kernels."""
    if depth:
        left, right = random_kernel(rng, depth - 1), random_kernel(rng, depth - 1)
        return left + right if rng.random() < 0.5 else left * right
    scales = rng.uniform(0.3, 3.0, size=3)
    leaves = [
        RBF(scales),
        Matern(scales, nu=rng.choice([0.5, 1.5, 2.5])),
        RationalQuadratic(scales, alpha=rng.uniform(0.3, 3.0)),
        Periodic(scales, rng.uniform(1.0, 3.0, size=3)),
        Linear(scales, offset=rng.uniform(0.1, 1.0)),
        Constant(rng.uniform(0.1, 2.0)),
        White(rng.uniform(0.1, 1.0)),
    ]
    return leaves[rng.integers(len(leaves))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.every_nth("seed", 2)
def test_random_compositions_are_positive_semidefinite(seed):
    kernel = random_kernel(np.random.default_rng(seed), depth=3)
    eigenvalues = np.linalg.eigvalsh(kernel(inputs(40, seed)))
    assert eigenvalues.min() > -1e-12 * eigenvalues.max()


@pytest.mark.parametrize(
    "kernel", [RBF(), Matern(nu=1.5), Linear(), Periodic(), Wiener()], ids=repr
)
def test_inputs_are_matrices_of_the_same_features(kernel):
    with pytest.raises(ValueError, match=r"shape \(n_samples, n_features\); got \(3,\)"):
        kernel(np.arange(3.0))
    with pytest.raises(ValueError, match=r"shape \(n_samples, n_features\); got \(4,\)"):
        kernel(np.ones((3, 1)), np.ones(4))
    with pytest.raises(ValueError, match="the inputs have 2 and 1 features"):
        kernel(np.ones((3, 2)), np.ones((4, 1)))
