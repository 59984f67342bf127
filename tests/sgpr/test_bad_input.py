"""Bad input: a clear ValueError or TypeError, or a correct finite answer, and never a warning.

Every test runs with all warnings as errors, so that an overflow anywhere is seen.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skvbgp import VBFITCRegressor, VBPICRegressor
from skvbgp.kernels import RBF, Constant
from tests.sgpr.cases import (
    BLOCKED,
    SOLVERS,
    WITH_NOISE_KERNEL,
    every,
    make_data,
    small,
)

pytestmark = [
    pytest.mark.usefixtures("quick_block_start"),
    pytest.mark.filterwarnings("error"),
]

each_solver = pytest.mark.parametrize("solver", SOLVERS)


def assert_sound(model, X, y):
    """Finite everywhere, with variances that are positive and covariances that are one."""
    for include_noise in (True, False):
        mean, std = model.predict(X, return_std=True, include_noise=include_noise)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert np.all(std > 0.0 if include_noise else std >= 0.0)
        assert np.all(np.abs(mean - np.mean(y)) <= 2.0 * np.ptp(y) + 1e-9 * np.abs(np.mean(y)))
    _, cov = model.predict(X, return_cov=True, include_noise=False)
    assert np.isfinite(cov).all()
    assert np.all(np.diagonal(cov) >= 0.0)
    assert np.isfinite(model.sample_y(X[:5], 2)).all()
    assert np.isfinite(model.lower_bound_)
    for name in ("inverse_length_scale_mean_", "signal_std_mean_", "noise_variance_"):
        assert np.isfinite(getattr(model, name)).all(), name
        assert np.all(getattr(model, name) > 0.0), name


# -- data that are refused -------------------------------------------------------------------


def with_entry(array, value):
    array = array.copy()
    array.flat[5] = value
    return array


X_GOOD, Y_GOOD = make_data(20)
REFUSED = {
    "inf in X": (with_entry(X_GOOD, np.inf), Y_GOOD, "infinity"),
    "NaN in y": (X_GOOD, with_entry(Y_GOOD, np.nan), "NaN"),
    "inf in y": (X_GOOD, with_entry(Y_GOOD, -np.inf), "infinity"),
    "no rows": (X_GOOD[:0], Y_GOOD[:0], "0 sample"),
    "no columns": (X_GOOD[:, :0], Y_GOOD, "0 feature"),
    "1-d X": (X_GOOD[:, 0], Y_GOOD, "2D array"),
    "3-d X": (X_GOOD[:, :, None], Y_GOOD, "dim 3"),
    "scalar X": (1.0, Y_GOOD, "scalar"),
    "short y": (X_GOOD, Y_GOOD[:-1], "inconsistent"),
    "3-d y": (X_GOOD, np.zeros((20, 2, 1)), "dim 3"),
    "no y": (X_GOOD, None, "y"),
    "complex X": (X_GOOD + 1j, Y_GOOD, "[Cc]omplex"),
    "complex y": (X_GOOD, Y_GOOD + 1j, "[Cc]omplex"),
    "strings in X": (np.full((20, 2), "a"), Y_GOOD, "could not convert|string"),
    "strings in y": (X_GOOD, ["a"] * 20, "could not convert|string"),
    "objects in X": (np.full((20, 2), object()), Y_GOOD, "float"),
    "ragged X": ([[1.0, 2.0], [3.0]], [1.0, 2.0], "inhomogeneous|sequence"),
}


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("case", REFUSED)
def test_data_that_are_refused(cls, method, case):
    X, y, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(small(cls), method)(X, y)


@every
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "must have the shape"),
        ([[]], "must have the shape"),
        ([1.0, 2.0], "must have the shape"),
        (with_entry(X_GOOD, np.nan), "contains NaN"),
        (X_GOOD[:, :1], "has 1 columns, but X has 2"),
    ],
)
def test_inducing_inputs_that_are_refused(cls, given, message):
    with pytest.raises(ValueError, match=f"inducing_inputs {message}"):
        small(cls, inducing_inputs=given).fit(X_GOOD, Y_GOOD)


@pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)
@pytest.mark.parametrize("given", ["spam", 3, [RBF()], RBF([1.0, 2.0, 3.0])], ids=repr)
def test_an_error_about_the_noise_kernel_names_it(cls, given):
    with pytest.raises((TypeError, ValueError), match="noise_kernel: "):
        small(cls, noise_kernel=given).fit(X_GOOD, Y_GOOD)


@every
@pytest.mark.parametrize("method", ["predict", "sample_y", "partial_fit"])
@pytest.mark.every_nth("method", 2)
def test_other_width_than_in_fit(cls, method):
    model = small(cls, max_iter=1).fit(X_GOOD, Y_GOOD)
    for X in (X_GOOD[:, :1], np.hstack([X_GOOD, X_GOOD])):
        arguments = (X, Y_GOOD) if method == "partial_fit" else (X,)
        with pytest.raises(ValueError, match="features"):
            getattr(model, method)(*arguments)


@every
def test_inputs_of_predict_that_are_refused(cls):
    model = small(cls, max_iter=1).fit(X_GOOD, Y_GOOD)
    for case, (X, _, message) in REFUSED.items():
        if "X" in case or case.startswith("no ") and case != "no y":
            with pytest.raises((ValueError, TypeError), match=message):
                model.predict(X, return_std=True)


# -- data that are unusual ---------------------------------------------------------------------


def unusual():
    X, y = make_data(30)
    rng = np.random.default_rng(7)
    near = X[:1] + 1e-9 * rng.standard_normal((30, 2))
    return {
        "one row": (X[:1], y[:1]),
        "two rows": (X[:2], y[:2]),
        "one column": (X[:, :1], y),
        "constant target": (X, np.full(30, 3.0)),
        "zero target": (X, np.zeros(30)),
        "huge constant target": (X, np.full(30, 1e15 / 3.0)),
        "one outlier": (X, np.where(np.arange(30) == 4, 1e3, 3.0)),
        "one huge outlier": (X, np.where(np.arange(30) == 4, 1e12, 3.0)),
        "two values": (X, np.where(X[:, 0] > 0.0, 1.0, 0.0)),
        "duplicated rows": (np.repeat(X[:3], 10, axis=0), y),
        "one row many times": (np.repeat(X[:1], 30, axis=0), y),
        "one row and one target many times": (np.repeat(X[:1], 30, axis=0), np.full(30, 2.0)),
        "rows nearly equal": (near, y),
        "collinear columns": (np.column_stack([X[:, 0], 2.0 * X[:, 0], -X[:, 0]]), y),
        "constant columns": (np.column_stack([X, np.full(30, 5.0), np.zeros(30)]), y),
        "only constant columns": (np.full((30, 2), 5.0), y),
        "more columns than rows": (rng.standard_normal((10, 40)), y[:10]),
        "large offset of X": (X + 1e8, y),
        "large offset of y": (X, y + 1e8),
        "one input far away": (np.concatenate([X[:-1], [[1e6, -1e6]]]), y),
        "heavy tails": (rng.standard_cauchy((30, 2)) ** 3, rng.standard_cauchy(30) ** 3),
        "columns of very different scale": (X * [1e-8, 1e8], y),
    }


@every
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", unusual())
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("case", 2)
@pytest.mark.every_nth("cls", 3)
def test_unusual_data(cls, solver, case):
    X, y = unusual()[case]
    model = small(cls, solver).fit(X, y)
    assert_sound(model, np.concatenate([X, X[:5] + 0.3 * np.std(X, axis=0)]), y)


@pytest.mark.parametrize("cls", [VBFITCRegressor, VBPICRegressor])
@pytest.mark.parametrize("case", unusual())
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("case", 4)
def test_unusual_data_in_a_stream(cls, case):
    X, y = unusual()[case]
    model = small(cls, max_iter=1, n_inducing=6)
    for rows in np.array_split(np.arange(len(X)), min(2, len(X))):
        model.partial_fit(X[rows], y[rows])
    assert_sound(model, X[:10], y)


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_a_constant_target_is_predicted(cls, solver):
    X, _ = make_data(30)
    model = small(cls, solver).fit(X, np.full(30, 3.0))
    assert_allclose(model.predict(X), 3.0, rtol=1e-6)


@every
@each_solver
@pytest.mark.every_nth("solver", 3)
def test_more_inducing_inputs_than_distinct_rows(cls, solver):
    X, y = make_data(12)
    X, y = np.concatenate([X, X[:6]]), np.append(y, y[:6])
    model = small(cls, solver, n_inducing=500).fit(X, y)
    assert_sound(model, X, y)
    if solver == "exact" and cls in WITH_NOISE_KERNEL:  # those of the noise, a quarter of the rows
        assert model.inducing_inputs_.shape == (3, 2)
        return
    assert model.inducing_inputs_.shape == (12, 2)
    start = small(cls, solver, n_inducing=500, learn_hyperparameters=False).fit(X, y)
    assert_allclose(np.unique(start.inducing_inputs_, axis=0), np.unique(X[:12], axis=0))


@pytest.mark.parametrize("cls", BLOCKED)
@each_solver
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_more_blocks_than_rows(cls, solver):
    X, y = make_data(12)
    model = small(cls, solver, n_blocks=100).fit(X, y)
    assert_sound(model, X, y)
    assert_allclose(model.predict(X), small(cls, solver, n_blocks=12).fit(X, y).predict(X))


@every
@pytest.mark.parametrize(
    ("X_scale", "y_scale"), [(1e-310, 1.0), (1e307, 1.0), (1.0, 1e-310), (1.0, 1e306)]
)
def test_numbers_beyond_the_range_of_their_squares(cls, X_scale, y_scale):
    X, y = make_data(30)
    model = small(cls)
    try:
        model.fit(X_scale * X, y_scale * y)
    except ValueError as error:
        assert "scale" in str(error).lower()
    else:
        assert_sound(model, X_scale * X, y_scale * y)


# -- scales ------------------------------------------------------------------------------------

SCALES = [1e12, 1e-12, 1e150, 1e-150]


@every
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("solver", 3)
def test_scale_of_the_targets(cls, solver, scale):
    X, y = make_data(30)
    expected = small(cls, solver).fit(X, y).predict(X, return_std=True)
    model = small(cls, solver).fit(X, scale * y)
    for mine, theirs in zip(model.predict(X, return_std=True), expected, strict=True):
        assert_allclose(mine / scale, theirs, rtol=1e-5)
    assert_sound(model, X, scale * y)


@every
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("scale", 3)
def test_scale_of_the_inputs(cls, solver, scale):
    X, y = make_data(30)
    expected = small(cls, solver).fit(X, y).predict(X, return_std=True)
    model = small(cls, solver).fit(scale * X, y)
    for mine, theirs in zip(model.predict(scale * X, return_std=True), expected, strict=True):
        assert_allclose(mine, theirs, rtol=1e-5)
    assert_sound(model, scale * X, y)


@every
@pytest.mark.parametrize("scale", [1e12, 1e-12])
@pytest.mark.every_nth("scale", 2)
def test_scale_of_the_targets_without_normalisation(cls, scale):
    """The prior of the hyperparameters is for unit scale, but nothing may break."""
    X, y = make_data(30)
    model = small(cls, normalize_y=False).fit(X, scale * y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(np.isfinite(std) & (std > 0.0))


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_far_from_the_data(cls, solver):
    """Like the prior: the mean of y, with the variance of signal and noise."""
    X, y = make_data()
    model = small(cls, solver).fit(X, y)
    far = X.mean(axis=0) + 1e6 * X.std(axis=0) * np.array([[1.0, 1.0], [-1.0, 0.5], [0.3, -2.0]])
    for scale in (1.0, 1e50, 1e140):
        mean, std = model.predict(scale * far, return_std=True, include_noise=False)
        assert_allclose(mean, y.mean(), atol=0.02 * y.std())
        prior = np.sqrt(model.signal_std_mean_**2 + model.signal_std_var_)
        assert_allclose(std, prior, rtol=0.02)
        _, noisy = model.predict(scale * far, return_std=True)
        assert np.all(noisy**2 >= std**2 + 0.999 * model.noise_variance_)
        assert np.all(noisy < 3.0 * y.std())
        assert np.isfinite(model.sample_y(scale * far)).all()


# -- parameters ----------------------------------------------------------------------------------

Z_GOOD = X_GOOD[:4]
BAD_PARAMETERS = [
    ("n_inducing", [0, -3, 2.5, "10", None]),
    ("length_scale", [0.0, -1.0, np.nan, np.inf, [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]]]),
    ("length_scale", [[1.0, 0.0], [1.0, -2.0], [1.0, np.nan], ["a", "b"], "auto", []]),
    ("signal_std", [0.0, -1.0, np.nan, np.inf, "1", [1.0]]),
    ("noise_variance", [0.0, -1.0, np.nan, np.inf, "1", [1.0]]),
    ("hyperparameter_variance", [0.0, -1.0, np.nan, np.inf, "1", [1.0]]),
    ("prior_mean", [np.nan, np.inf, [0.0, 0.0], [0.0, 0.0, np.nan], [[0.0, 0.0, 0.0]], "a", None]),
    ("prior_variance", [0.0, -1.0, np.nan, [1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, -1.0]]),
    ("prior_variance", [[1.0, np.inf, 1.0], "a"]),
    ("solver", ["sgd", None, 1]),
    ("psi", ["exact", None, 1]),
    ("learn_hyperparameters", ["yes", None]),
    ("max_iter", [0, -1, 1.5, "3"]),
    ("batch_size", [0, -1, 1.5, None]),
    ("learning_rate", [0.0, -1.0, np.nan, "a", None]),
    ("tol", [-1.0, np.nan, "a", None]),
    ("normalize_y", ["yes", None]),
    ("warm_start", ["yes", None]),
    ("random_state", ["a", -1, 1.5]),
    ("n_jobs", [1.5, "2"]),
    ("inducing_inputs", [Z_GOOD[:, :1], np.hstack([Z_GOOD, Z_GOOD]), Z_GOOD[:0], Z_GOOD[:, 0]]),
    ("inducing_inputs", [with_entry(Z_GOOD, np.nan), with_entry(Z_GOOD, np.inf), "kmeans", 3]),
    ("inducing_inputs", [Z_GOOD + 1j, np.full((4, 2), "a"), [[1.0, 2.0], [3.0]]]),
]


@every
@pytest.mark.parametrize(
    ("name", "values"), BAD_PARAMETERS, ids=[f"{i}-{p[0]}" for i, p in enumerate(BAD_PARAMETERS)]
)
@pytest.mark.every_nth("name", 2)
def test_bad_parameters(cls, name, values):
    for value in values:
        model = small(cls).set_params(**{name: value})
        before = dict(vars(model))
        with pytest.raises((ValueError, TypeError)) as caught:
            model.fit(X_GOOD, Y_GOOD)
        assert "broadcast" not in str(caught.value), value
        if name != "inducing_inputs":  # scikit-learn's own message names only some causes
            assert name in str(caught.value), value
        assert vars(model) == before


@pytest.mark.parametrize("cls", BLOCKED)
def test_bad_numbers_of_blocks(cls):
    for value in (0, -1, 2.5, "many", None):
        with pytest.raises(ValueError, match="n_blocks"):
            small(cls, n_blocks=value).fit(X_GOOD, Y_GOOD)


@pytest.mark.parametrize("cls", BLOCKED)
def test_bad_numbers_of_draws(cls):
    for value in (0, -1, 2.5, "8", None):
        with pytest.raises(ValueError, match="n_samples"):
            small(cls, n_samples=value).fit(X_GOOD, Y_GOOD)


class OtherKernel(sk.RBF):
    """A subclass may have another formula."""


WRONG_TYPES = [
    1.0, "rbf", RBF, np.eye(2), sk.RBF, OtherKernel(), sk.Matern(nu=0.7), sk.PairwiseKernel(),
]  # fmt: skip


@pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kernel", WRONG_TYPES)
@pytest.mark.in_turn("cls", "solver")
def test_noise_kernels_of_a_wrong_type(cls, solver, kernel):
    with pytest.raises((ValueError, TypeError), match="[Kk]ernel|nu"):
        small(cls, solver, noise_kernel=kernel).fit(X_GOOD, Y_GOOD)


@pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)
@pytest.mark.parametrize("kernel", [RBF([1.0, 2.0, 3.0]), 0.5 * sk.RBF([1.0, 2.0, 3.0])])
def test_noise_kernels_of_another_width(cls, kernel):
    with pytest.raises(ValueError, match="length_scale|features|inputs"):
        small(cls, noise_kernel=kernel).fit(X_GOOD, Y_GOOD)


UNUSUAL_KERNELS = [
    Constant(1e-10) * RBF(1.0), Constant(1e6) * RBF(1.0), RBF(1e-6), RBF(1e6), sk.DotProduct(),
]  # fmt: skip


@pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kernel", UNUSUAL_KERNELS)
@pytest.mark.in_turn("cls", "solver")
@pytest.mark.every_nth("kernel", 2)
@pytest.mark.every_nth("solver", 2)
def test_unusual_noise_kernels(cls, solver, kernel):
    X, y = make_data()
    assert_sound(small(cls, solver, noise_kernel=kernel).fit(X, y), X, y)


UNUSUAL_STARTS = [
    {"length_scale": 1e-6},
    {"length_scale": 1e6},
    {"signal_std": 1e-8},
    {"signal_std": 1e8},
    {"noise_variance": 1e-12},
    {"noise_variance": 1e12},
    {"hyperparameter_variance": 1e-16},
    {"hyperparameter_variance": 1e6},
    {"prior_mean": [5.0, -5.0, 100.0]},
    {"prior_variance": 1e-6},
    {"prior_variance": 1e12},
    {"inducing_inputs": np.zeros((5, 2))},
    {"inducing_inputs": 1e9 + np.arange(10.0).reshape(5, 2)},
    {"inducing_inputs": [[0.0, 1.0]]},
]
TRAINING = [
    {"solver": "collapsed"},
    {"solver": "collapsed", "learn_hyperparameters": False},
    {"solver": "stochastic"},
]


@every
@pytest.mark.parametrize("training", TRAINING)
@pytest.mark.parametrize("start", UNUSUAL_STARTS)
@pytest.mark.in_turn("training")
@pytest.mark.every_nth("start", 2)
@pytest.mark.every_nth("cls", 3)
def test_unusual_starts(cls, training, start):
    X, y = make_data(20)
    model = small(cls, **training, **start).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(np.isfinite(std) & (std > 0.0))
    assert np.isfinite(model.lower_bound_)
    assert np.isfinite(model.sample_y(X)).all()


@every
def test_parameters_are_not_checked_or_changed_before_fit(cls):
    model = cls(n_inducing=-1, length_scale="nonsense")
    assert clone(model).length_scale == "nonsense"
    given = np.array([1.0, 2.0])
    model = small(cls, length_scale=given, inducing_inputs=Z_GOOD).fit(X_GOOD, Y_GOOD)
    assert model.length_scale is given
    assert model.inducing_inputs is Z_GOOD
    assert_array_equal(given, [1.0, 2.0])
