"""Small data and quick instances of the four regressors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor

REGRESSORS = [VBDTCRegressor, VBFITCRegressor, VBPITCRegressor, VBPICRegressor]
#: Those whose noise is independent, so that rows may be regrouped.
INDEPENDENT = [VBDTCRegressor, VBFITCRegressor]
BLOCKED = [VBPITCRegressor, VBPICRegressor]
WITH_NOISE_KERNEL = [VBFITCRegressor, *BLOCKED]
#: Those that know the data through inducing inputs.
SPARSE_SOLVERS = ["collapsed", "stochastic"]
SOLVERS = ["exact", *SPARSE_SOLVERS]


def every(test):
    """Give a test a class in turn: the regressors share a learner, and the other cases are slow."""
    return pytest.mark.in_turn("cls")(pytest.mark.parametrize("cls", REGRESSORS)(test))


def quick_for(quick, thorough):
    """Give a test these classes, the first by default; the others are slow.

    As `every` does, where the turn would be that of a class that takes longer than the first.
    """
    marks = {quick: [], thorough: pytest.mark.thorough}
    cases = [pytest.param(cls, marks=marks.get(cls, pytest.mark.slow)) for cls in REGRESSORS]
    return pytest.mark.parametrize("cls", cases)


def small(cls, solver="collapsed", **parameters):
    """An instance that trains in milliseconds, with a few passes of several mini-batches."""
    quick = {
        "n_inducing": 10,
        "max_iter": 2,
        "batch_size": 16,
        "learning_rate": 0.05,
        "random_state": 0,
    }
    if solver == "exact":
        quick["n_inducing"] = 500
    if cls in BLOCKED:
        quick |= {"n_blocks": 4, "noise_kernel": None}
    return cls(**{**quick, "solver": solver, **parameters})


def ways(test):
    """Give a test both regressors with independent noise, each with the next solver."""
    solvers = pytest.mark.parametrize("solver", SOLVERS)(pytest.mark.in_turn("solver")(test))
    return pytest.mark.parametrize("cls", INDEPENDENT)(solvers)


def joint(cls, solver="collapsed", **parameters):
    """An instance whose outputs learn from each other."""
    return small(cls, solver, **({"output_covariance": "learned"} | parameters))


def make_data(n=40, d=2, seed=0):
    """Inputs of unequal spread, and a wavy function of them with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d)) * np.arange(1, d + 1) + 0.5
    y = 3.0 * np.sin(X @ np.linspace(1.0, 0.5, d)) + 10.0 + 0.2 * rng.standard_normal(n)
    return X, y


def scoring(cls, solver):
    """An instance with steps enough for the score of `check_regressors_train`.

    What ten inducing inputs leave of ten columns, VBPITC's noise kernel explains.
    """
    more = {"n_inducing": 30} if cls is VBPITCRegressor and solver != "exact" else {}
    return small(cls, solver, batch_size=32, learning_rate=0.1, **more)


#: For the common tests. The first instances of the classes have the solvers in turn.
INSTANCES = [
    scoring(cls, SOLVERS[(i + j) % 3]) for i, cls in enumerate(REGRESSORS) for j in range(3)
]
INSTANCES.append(small(VBPICRegressor, batch_size=32, learning_rate=0.1, noise_kernel="auto"))


GIVEN = {
    "length_scale": [0.7, 2.5],
    "signal_std": 1.7,
    "noise_variance": 0.3,
    "hyperparameter_variance": 0.02,
}

HYPERPARAMETERS = [
    "inverse_length_scale_mean_",
    "inverse_length_scale_var_",
    "signal_std_mean_",
    "signal_std_var_",
    "noise_variance_",
]


def attributes(model):
    return {name: np.array(getattr(model, name)) for name in [*HYPERPARAMETERS, "inducing_inputs_"]}


def assert_same_model(a, b, X, rtol=1e-10):
    for name, value in attributes(a).items():
        assert_allclose(getattr(b, name), value, rtol=rtol, err_msg=name)
    assert_allclose(b.lower_bound_, a.lower_bound_, rtol=rtol)
    for mine, theirs in zip(b.predict(X, True), a.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=rtol)
