"""Kernels as values: hyperparameters, bounds, binding, representation, errors."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    White,
)
from tests.kernels.cases import CASES, N_FEATURES, inputs

NAMES = {c.__name__: c for c in {type(case) for case in CASES}}


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_representation_equality_and_hash(kernel):
    twin = eval(repr(kernel), NAMES)
    assert twin == kernel
    assert hash(twin) == hash(kernel)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert sum(other == kernel for other in CASES) == 1


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_theta(kernel):
    theta = kernel.theta
    assert theta.shape == (len(kernel.hyperparameters),) == (kernel.n_free,)
    assert kernel.bounds.shape == (len(theta), 2)
    assert_allclose(kernel.with_theta(theta)(inputs(4)), kernel(inputs(4)), rtol=1e-13)
    other = kernel.with_theta(theta + 0.1)
    assert_allclose(other.theta, theta + 0.1)
    assert_array_equal(other.bounds, kernel.bounds)
    assert other.hyperparameters == kernel.hyperparameters
    assert (other == kernel) == (len(theta) == 0)
    with pytest.raises(ValueError, match="theta has shape"):
        kernel.with_theta(np.zeros(len(theta) + 1))
    for beyond in [-1e3, 1e3] if len(theta) else []:  # the logarithms of 0 and infinity
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="positive and finite"):
            kernel.with_theta(theta + beyond)
    for i in range(len(theta)):
        with pytest.raises(ValueError, match="positive and finite"):
            kernel.with_theta(np.where(np.arange(len(theta)) == i, np.nan, theta))


@dataclass(frozen=True)
class Reciprocal(RBF):
    """A kernel that makes another one of its parameters itself."""

    def with_theta(self, theta):
        return replace(self, length_scale=tuple(np.exp(-theta)))

    _take_theta = Kernel._take_theta


def test_theta_of_a_sum_with_a_kernel_of_its_own_ways():
    kernel = (Constant(2.0) * Reciprocal([1.0, 4.0]) + White(0.1)).with_theta(np.log([3, 2, 4, 5]))
    assert_allclose(np.exp(kernel.theta), [3.0, 0.5, 0.25, 5.0])


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_bind(kernel):
    bound = kernel.bind(N_FEATURES)
    assert bound.bind(N_FEATURES) == bound
    assert_allclose(bound(inputs(4)), kernel(inputs(4)), rtol=1e-13)


def test_bind_gives_each_input_its_length_scale():
    assert RBF(2.0).bind(3) == RBF([2.0, 2.0, 2.0])
    assert RBF(2.0, isotropic=True).bind(3) == RBF(2.0, isotropic=True)
    assert Periodic([1.0, 2.0], 3.0).bind(2) == Periodic([1.0, 2.0], [3.0, 3.0])
    assert (Constant(2.0) * Linear() + White()).bind(2).hyperparameters == [
        "0.0.value",
        "0.1.length_scale[0]",
        "0.1.length_scale[1]",
        "0.1.offset",
        "1.noise_level",
    ]


@pytest.mark.parametrize("use", [lambda k: k.bind(3), lambda k: k(inputs(4))])
def test_number_of_length_scales_is_checked(use):
    with pytest.raises(ValueError, match="length_scale has 1 entries, .* 3 features"):
        use(RBF([1.0]))


def test_bounds():
    kernel = RationalQuadratic(
        [1.0, 2.0], length_scale_bounds=[(0.1, 1.0), (0.2, 2.0)], alpha_bounds=(0.0, np.inf)
    )
    assert_allclose(np.exp(kernel.bounds), [(0.1, 1.0), (0.2, 2.0), (0.0, np.inf)])
    assert Constant(value_bounds=[(0.1, 1.0)]).bounds.shape == (1, 2)


def test_fixed_hyperparameters_are_not_in_theta():
    kernel = Matern([1.0, 2.0], length_scale_bounds="fixed") * Constant(3.0)
    assert kernel.hyperparameters == ["1.value"]
    assert kernel.with_theta(np.zeros(1)) == Product(kernel.kernels[0], Constant(1.0))


def test_operators():
    a, b, c = RBF(), White(), Linear()
    assert a + b + c == a + (b + c) == Sum(a, b, c)
    assert a * b * c == a * (b * c) == Product(a, b, c)
    assert (a + b) * c == Product(Sum(a, b), c)
    assert 2 * a == np.float64(2.0) * a == Product(Constant(2.0), a)
    assert a + 2.0 == Sum(a, Constant(2.0))
    assert 2.0 + a == Sum(Constant(2.0), a)
    assert a != b
    assert RBF() != Matern()
    assert repr((a + b) * 2) == (
        "(RBF(length_scale=1.0) + White(noise_level=1.0)) * Constant(value=2.0)"
    )


def test_kernels_are_immutable():
    with pytest.raises(FrozenInstanceError):
        RBF().length_scale = 2.0
    with pytest.raises(FrozenInstanceError):
        (RBF() + White()).kernels = ()
    scales = np.ones(2)
    kernel = RBF(scales)
    scales[0] = 5.0
    assert kernel == RBF([1.0, 1.0])


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0]])
def test_hyperparameters_must_be_positive(value):
    with pytest.raises(ValueError, match="RBF: length_scale must be positive and finite"):
        RBF(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF([[1.0]]), "length_scale has shape"),
        (lambda: RBF([]), "length_scale has shape"),
        (lambda: RBF("a"), "RBF: length_scale must hold numbers; got 'a'"),
        (lambda: Constant({}), "Constant: value must hold numbers"),
        (lambda: Constant([1.0, 2.0]), "value has shape"),
        (lambda: Linear(offset=0.0), "offset must be positive"),
        (lambda: RBF([1.0, 2.0], isotropic=True), "is isotropic"),
        (lambda: Matern(nu=0.7), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: RBF(length_scale_bounds="free"), "length_scale_bounds must be 'fixed'"),
        (lambda: RBF(length_scale_bounds=(1.0,)), "length_scale_bounds must be 'fixed'"),
        (lambda: RBF([1.0, 1.0], length_scale_bounds=[(1, 2)] * 3), "one pair per element"),
        (lambda: White(noise_level_bounds=(2.0, 1.0)), "0 <= lower <= upper"),
        (lambda: 0.0 * RBF(), "Constant: value must be positive"),
    ],
)
def test_wrong_hyperparameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [lambda: RBF() + "a", lambda: None * RBF(), lambda: Sum(RBF()), lambda: Product(RBF(), 2.0)],
)
def test_wrong_operands(make):
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_what_training_asks_for_is_no_part_of_a_kernel(kernel):
    """A user's kernel is the same to whoever hashes or copies it, before a fit and after."""
    before = pickle.dumps(kernel)
    kernel.with_theta(kernel.theta)
    assert pickle.dumps(kernel) == before
    assert pickle.loads(before) == kernel
