"""Parameters by name, as scikit-learn has them."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF, Constant, Kernel, Matern, Sum, White, as_kernel
from skvbgp.kernels._params import change_kernel
from tests.kernels.cases import CASES

KERNEL = 2.0 * RBF([1.0, 3.0]) + White(0.1)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_a_kernel_is_made_of_its_parameters(kernel):
    params = kernel.get_params()
    assert kernel.with_params(**kernel.get_params(deep=False)) == kernel
    assert kernel.with_params(**params) == kernel.with_params() == kernel
    assert kernel.get_params(deep=False).items() <= params.items()
    for name, value in params.items():
        assert kernel.with_params(**{name: value}) == kernel
    numbers = [name for name, value in params.items() if type(value) is float and "nu" not in name]
    for name in numbers:
        other = kernel.with_params(**{name: 2.5})
        assert other.get_params()[name] == 2.5
        assert other.with_params(**{name: params[name]}) == kernel != other


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_a_clone_is_the_same_value(kernel):
    assert clone(kernel) is kernel


def test_names_of_parts_are_scikit_learns():
    theirs = 2.0 * sk.RBF([1.0, 3.0]) + sk.Matern()
    ours = as_kernel(theirs)
    shared = ["k1", "k2", "k1__k1", "k1__k2", "k1__k2__length_scale", "k2__nu"]
    assert set(shared) <= ours.get_params().keys() & theirs.get_params().keys()
    assert list(Sum(RBF(), RBF(), RBF()).get_params(deep=False)) == ["k1", "k2", "k3"]


def test_a_changed_kernel_is_another_one():
    changed = KERNEL.with_params(k1__k2__length_scale=[2.0, 2.0], k1__k1__value=5, k2=Matern())
    assert changed == 5.0 * RBF([2.0, 2.0]) + Matern()
    assert KERNEL == 2.0 * RBF([1.0, 3.0]) + White(0.1)
    assert RBF().with_params(length_scale=2.0, isotropic=True) == RBF(2.0, isotropic=True)


def test_a_part_is_replaced_before_its_parameters_are():
    """In whatever order they are given."""
    changed = KERNEL.with_params(k2__nu=2.5, k2=Matern())
    assert changed == 2.0 * RBF([1.0, 3.0]) + Matern(nu=2.5)


@pytest.mark.parametrize("name", ["k3", "value", "k1__k3", "k1__k2__nu", "k2__noise_level__x"])
def test_unknown_names(name):
    with pytest.raises(ValueError, match="Invalid parameter .* for .* Valid parameters are: "):
        KERNEL.with_params(**{name: 1.0})


def test_values_are_checked():
    with pytest.raises(ValueError, match="Matern: nu must be"):
        (2.0 * Matern()).with_params(k2__nu=0.7)
    with pytest.raises(TypeError, match="Sum takes at least two kernels"):
        KERNEL.with_params(k1=3.0)


def test_no_kernel_is_changed():
    with pytest.raises(TypeError, match="RBF cannot be changed: kernel.with_params"):
        RBF().set_params(length_scale=2.0)


def test_kernels_with_names():
    theirs = 2.0 * sk.RBF()
    kernels = [("se", RBF()), Matern(), ["theirs", theirs], ("twin", RBF()), ("twin", White())]
    names = VBGPRegressor(kernels).get_params()
    assert names["kernel__se"] is kernels[0][1]
    assert names["kernel__theirs__k1__constant_value"] == 2.0
    assert not any(name.startswith("kernel__twin") for name in names)  # which one?

    changed = change_kernel(kernels, {"se__length_scale": 3.0, "theirs": White()})
    assert changed == [("se", RBF(3.0)), Matern(), ("theirs", White()), *kernels[3:]]
    assert kernels[0] == ("se", RBF())
    assert change_kernel(tuple(kernels[:2]), {"se__isotropic": True}) == (
        ("se", RBF(isotropic=True)),
        Matern(),
    )
    with pytest.raises(ValueError, match=r"Invalid parameter 'twin' .* \['se', 'theirs'\]"):
        change_kernel(kernels, {"twin__length_scale": 3.0})


def test_html_has_the_parameters_of_a_kernel_but_not_of_a_list():
    """A list may have hundreds of kernels."""
    assert "kernel__k2__nu" in VBGPRegressor(2.0 * Matern())._repr_html_()
    assert "kernel__rough" not in VBGPRegressor([("rough", Matern())])._repr_html_()


@pytest.mark.parametrize("kernel", ["auto", None, [RBF(), Matern()], RBF], ids=repr)
def test_what_has_no_parameters(kernel):
    model = VBGPRegressor(kernel)
    assert not any(name.startswith("kernel__") for name in model.get_params())
    with pytest.raises(ValueError, match=r"Invalid parameter 'nu' .* Valid parameters are: \[\]"):
        model.set_params(kernel__nu=0.5)


def test_an_estimator_gets_another_kernel():
    ours, theirs = 2.0 * RBF(), 2.0 * sk.RBF()
    for kernel in (ours, theirs):
        model = VBGPRegressor(kernel)
        other = clone(model)
        assert model.set_params(kernel__k2__length_scale=3.0, max_iter=7) is model
        assert (model.kernel.k2 if kernel is theirs else model.kernel.kernels[1]).length_scale == 3
        assert model.max_iter == 7
        assert other.get_params()["kernel__k2__length_scale"] == 1.0
    assert ours == 2.0 * RBF()
    model.set_params(kernel__k1__value=4.0, kernel=ours)
    assert model.kernel == 4.0 * RBF()
    with pytest.raises(ValueError, match="Invalid parameter 'kernels' for estimator VBGPRegressor"):
        model.set_params(kernels__length_scale=1.0)


class Polynomial(Kernel):
    """A user's kernel, which is no dataclass."""

    theta, bounds, hyperparameters = np.empty(0), np.empty((0, 2)), ()
    vjp = vjp_diag = None

    def __init__(self, base, degree=2):
        self.base, self.degree = base, degree

    def __call__(self, X, Z=None):
        return self.base(X, Z) ** self.degree

    def diag(self, X):
        return self.base.diag(X) ** self.degree

    def with_theta(self, theta):
        return self

    def bind(self, n_features):
        return Polynomial(self.base.bind(n_features), self.degree)


def test_a_kernel_of_ones_own():
    kernel = Polynomial(Constant(2.0))
    assert kernel.get_params()["base__value"] == 2.0
    changed = kernel.with_params(base__value=3.0, degree=3)
    assert changed(np.zeros((1, 1))) == 27.0
    assert kernel(np.zeros((1, 1))) == 4.0
