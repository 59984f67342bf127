import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from skvbgp import VBKSRegressor, kernel_grammar
from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import parameters, total_statistics
from skvbgp.kernel_selection._scales import DataScales, find_periods
from skvbgp.kernel_selection._start import draw_sample
from skvbgp.kernels import RBF, Anova, Constant, Linear, Periodic, White
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Leaf
from tests.kernel_selection.cases import make_series, small
from tests.observer import Recorder
from tests.oracles import kernel_selection as oracle

SEASONAL = kernel_grammar(2, base=("LIN", "PER"))


@pytest.fixture(scope="module")
def seasonal():
    X, y = make_series()
    return VBKSRegressor(SEASONAL, random_state=0, n_restarts=2).fit(X, y)


@pytest.mark.thorough
def test_finds_trend_and_season_and_extrapolates(seasonal):
    assert seasonal.best_kernel_[0] == "LIN + PER"
    t = np.linspace(12.0, 15.0, 20)
    mean, std = seasonal.predict(t[:, None], return_std=True)
    truth = 3.0 + 0.5 * t + np.sin(2.0 * np.pi * t / 1.5)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.15
    assert np.all(std > 0.05)
    words = seasonal.summary()
    assert "a linear trend" in words and "a periodic part of period 1.5" in words


def test_attributes_agree(seasonal):
    assert_allclose(seasonal.kernel_posterior_.sum(), 1.0)
    assert_allclose(seasonal.estimator_weights_.sum(), 1.0)
    best = np.argmax(seasonal.local_lower_bounds_)
    assert seasonal.kernels_[best] == seasonal.best_kernel_
    assert seasonal.estimators_[0].name == seasonal.best_kernel_[0]
    assert seasonal.lower_bound_ < seasonal.local_lower_bounds_.max()
    assert seasonal.g_cov_.shape == (len(SEASONAL),) * 2


def test_bound_at_all_rows_is_the_evidence_on_the_scale_of_y(seasonal):
    X, y = make_series()
    kernel = seasonal.best_kernel_[1]
    noise = seasonal.estimators_[0].noise_variance
    K = y.var() * kernel(X - X.mean())
    expected = oracle.log_evidence(K, noise, y - y.mean())
    assert_allclose(seasonal.local_lower_bounds_.max(), expected, atol=1e-3)


def test_prediction_of_each_kernel_is_that_of_an_exact_process(seasonal):
    X, y = make_series()
    model, new = seasonal.estimators_[0], np.linspace(0.0, 14.0, 9)[:, None]
    K = y.var() * model.kernel(X - X.mean()) + model.noise_variance * np.eye(len(y))
    cross = y.var() * model.kernel(new - X.mean(), X - X.mean())
    expected = y.mean() + cross @ np.linalg.solve(K, y - y.mean())
    assert_allclose(model.predict(new), expected, atol=1e-3)


def test_average_is_eq_15(seasonal):
    new = np.linspace(0.0, 14.0, 9)[:, None]
    moments = [model.predict(new, return_std=True) for model in seasonal.estimators_]
    means, stds = map(np.array, zip(*moments, strict=True))
    w = seasonal.estimator_weights_
    mean, std = seasonal.predict(new, return_std=True)
    assert_allclose(mean, w @ means)
    assert_allclose(std**2, w @ (stds**2 + means**2) - mean**2, rtol=1e-6)
    _, cov = seasonal.predict(new, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)


def test_prune_recomputes_the_belief():
    X, y = make_series(40)
    model = VBKSRegressor(SEASONAL[:5], random_state=0, n_restarts=1, top_k=4).fit(X, y)
    bounds = np.sort(model.local_lower_bounds_)[::-1]
    assert model.prune(2) is model
    for weights in (model.estimator_weights_, model.kernel_posterior_):
        assert not np.shares_memory(weights, model._state.weights)
        assert not np.shares_memory(weights, model._state.belief.posterior)
    assert len(model.kernels_) == len(model.estimators_) == 2
    assert_allclose(model.local_lower_bounds_, bounds[:2])
    assert_allclose(model.kernel_posterior_, model.estimator_weights_)
    assert_allclose(model.kernel_posterior_.sum(), 1.0)
    with pytest.raises(ValueError, match="top_k"):
        model.prune(0)


@pytest.mark.parametrize(("options", "n_tasks"), [({"n_trained": 1}, 4), ({"n_trained": None}, 6)])
@pytest.mark.every_nth("options", 2)
def test_averaging_fewer_kernels_trains_no_fewer(options, n_tasks):
    """Three are screened; then as many are trained as `n_trained` says, whatever `top_k`."""
    X, y = make_series(40)
    kernels = kernel_grammar(1)[:3]
    watch = Recorder()
    model = small(kernels=kernels, top_k=1, **options).set_callbacks(watch).fit(X, y)
    assert len(watch.models) == n_tasks
    assert len(model.estimators_) == 1


def test_a_level_that_wanders_is_rough():
    rng = np.random.default_rng(1)
    y = np.cumsum(rng.standard_normal(80)) + 0.1 * rng.standard_normal(80)
    model = small(kernels=kernel_grammar(1, base=("M12", "SE")), n_inducing=None)
    model.fit(np.arange(80.0)[:, None], y)
    assert model.best_kernel_[0] == "M12"
    assert model.local_lower_bounds_[0] > model.local_lower_bounds_[1] + 3.0


def test_copies_of_a_kernel_share_their_belief():
    X, y = make_series()
    copies = [("a", RBF()), ("line", Linear()), ("b", RBF())]
    model = small(kernels=copies).fit(X, y)
    assert model.local_lower_bounds_[0] == model.local_lower_bounds_[2]
    assert_allclose(model.kernel_posterior_[0], model.kernel_posterior_[2], rtol=1e-12)


@pytest.mark.parametrize(
    "backend",
    [
        "sequential",
        "threading",
        *(pytest.param(b, marks=pytest.mark.slow) for b in ["loky", "dask"]),
    ],
)
@pytest.mark.parametrize("n_jobs", [2])
@pytest.mark.every_nth("backend", 2)
@pytest.mark.thorough
def test_results_do_not_depend_on_the_backend(backend, n_jobs, request):
    X, y = make_series(40)
    parameters = {"kernels": kernel_grammar(1), "max_iter": 3}
    expected = small(**parameters).fit(X, y)
    if backend == "dask":
        request.getfixturevalue("client")
        with parallel_config(backend="dask"):
            model = small(**parameters).fit(X, y)
    else:
        with parallel_config(backend=backend):
            model = small(**parameters, n_jobs=n_jobs).fit(X, y)
    assert_array_equal(model.local_lower_bounds_, expected.local_lower_bounds_)
    assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.parametrize("options", [{}, {"batch_size": 32, "max_iter": 2}])
@pytest.mark.parametrize("n_tasks", [1, 3, 5])
@pytest.mark.filterwarnings("ignore:Kernel 'LIN' could not be fitted")
@pytest.mark.every_nth("n_tasks", 2)
def test_a_callback_may_stop(n_tasks, options):
    X, y = make_series(40)
    stop = Recorder(stop_after=n_tasks)
    model = small(**options).set_callbacks(stop).fit(X, y)
    assert len(stop.models) == min(n_tasks, 8 if options else 4)
    assert_allclose(model.predict(X), stop.models[-1].predict(X))
    reached = np.isfinite(model.local_lower_bounds_)
    assert reached.tolist() == [True, n_tasks > 1]


class FailingKernel(RBF):
    def __call__(self, X, Z=None):
        raise FloatingPointError("overflow in a user's kernel")


def test_one_warning_tells_of_all_kernels_that_were_not_reached():
    X, y = make_series(40)
    kernels = [(f"k{i}", RBF(1.0 + i)) for i in range(6)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small(kernels=kernels).set_callbacks(Recorder(stop_after=1)).fit(X, y)
    (told,) = (str(one.message) for one in caught)
    assert told.startswith("Kernels 'k1', 'k2', 'k3' and 2 more could not be fitted and get no")


def test_a_failing_kernel_gets_no_belief_and_a_warning_that_names_it():
    X, y = make_series()
    kernels = [("good", RBF()), ("bad", FailingKernel())]
    with pytest.warns(RuntimeWarning, match="'bad'.*overflow in a user's kernel"):
        model = small(kernels=kernels).fit(X, y)
    assert_array_equal(model.kernel_posterior_, [1.0, 0.0])
    assert model.local_lower_bounds_[1] == -np.inf
    with pytest.raises(ArithmeticError, match="No kernel could be fitted"):
        small(kernels=kernels[1:]).fit(X, y)


def test_kernels_of_scikit_learn_and_fixed_hyperparameters():
    X, y = make_series()
    fixed = sklearn_kernels.RBF(0.7, length_scale_bounds="fixed")
    model = small(kernels=[2.0 * fixed, ("white", RBF() + White())]).fit(X, y)
    name, kernel = model.kernels_[0]
    assert name == repr(2.0 * fixed)
    assert kernel.kernels[1].length_scale == 0.7


def test_evidence_is_not_below_that_of_scikit_learn():
    X, y = make_series()
    target = (y - y.mean()) / y.std()
    reference = GaussianProcessRegressor(1.0 * sklearn_kernels.RBF(), alpha=0.3).fit(X, target)
    model = small(kernels=[("SE", Constant() * RBF())], n_inducing=None, n_restarts=3).fit(X, y)
    best = model.local_lower_bounds_[0] + len(y) * np.log(y.std())
    assert best > reference.log_marginal_likelihood_value_


@pytest.mark.parametrize("options", [{}, {"hyperparameter_posterior": "gaussian"}])
@pytest.mark.every_nth("options", 2)
def test_chunks_beyond_the_kept_rows_equal_all_rows(options, monkeypatch):
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 40)
    X, y = make_series(90)
    order = np.random.default_rng(0).permutation(90)
    first, second, third = np.split(order, [50, 70])
    model = small(batch_size=16, max_iter=2, **options).fit(X[first], y[first])
    states = []
    for chunks in ((second, third), (third, second)):
        other = pickle.loads(pickle.dumps(model))
        for chunk in chunks:
            other.partial_fit(X[chunk], y[chunk])
        states.append(other)
    assert_allclose(states[0].local_lower_bounds_, states[1].local_lower_bounds_, rtol=1e-9)
    assert_allclose(states[0].predict(X), states[1].predict(X), atol=1e-8 * y.std())
    assert states[0].n_samples_seen_ == 90
    if not options:  # the sums over all rows at once
        single = states[0].estimators_[0]
        whole = total_statistics(
            X, Targets(y), single._frame, single.inducing_inputs - single._frame.origin,
            single.kernel, single._points,
        )  # fmt: skip
        assert_allclose(single._statistics.information, whole.information, rtol=1e-8, atol=1e-7)


def test_partial_fit_with_few_rows_goes_on_from_all_of_them():
    X, y = make_series(60)
    kernels = [(name, k) for name, k in SEASONAL if name in ("LIN", "PER", "LIN + PER")]
    model = small(kernels=kernels, n_inducing=None)
    for chunk in np.split(np.arange(60), [1, 20, 50]):
        model.partial_fit(X[chunk], y[chunk])
    assert model.n_samples_seen_ == 60
    assert model.best_kernel_[0] == "LIN + PER"


@pytest.mark.slow
def test_gaussian_hyperparameters_are_penalised_for_their_number():
    X, y = make_series(20)
    kernels = [("SE", Constant() * RBF()), ("both", Constant() * RBF() + Constant() * RBF())]
    options = {"kernels": kernels, "n_inducing": 10, "max_iter": 25}
    point = small(**options).fit(X, y)
    gaussian = small(**options, hyperparameter_posterior="gaussian").fit(X, y)
    assert np.all(gaussian.local_lower_bounds_ < point.local_lower_bounds_)
    assert len(gaussian.estimators_[0]._points) == 16


def test_period_comes_from_the_spectrum_of_irregular_times():
    X, y = make_series(80)
    assert_allclose(find_periods(X[:, 0], y, np.ones(len(y)))[0], 1.5, rtol=0.05)
    assert_allclose(DataScales.of(X, Targets(y)).periods[0, 0], 1.5, rtol=0.05)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((5, 1)), np.arange(5.0)),
        (np.arange(5.0)[:, None], np.ones(5)),
        (np.repeat(np.arange(4.0), 3)[:, None], np.arange(12.0)),
        (np.column_stack([np.arange(9.0), np.zeros(9)]), np.arange(9.0) ** 2),
        (1e-150 * np.arange(9.0)[:, None], 1e-150 * np.arange(9.0) ** 2),
        (1e150 * np.arange(9.0)[:, None], 1e150 * np.arange(9.0) ** 2),
        (np.zeros((1, 2)), np.ones(1)),
    ],
    ids=["one place", "constant y", "repeated", "constant column", "tiny", "huge", "one row"],
)
@pytest.mark.every_nth("X", 3)
def test_unusual_data(X, y):
    kernels = [(name, k) for name, k in kernel_grammar(2) if name in ("SE", "LIN * PER", "RQ")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(kernels=kernels).fit(X, y)
        mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0) and np.isfinite(std).all()


def test_empty_list_of_kernels():
    with pytest.raises(ValueError, match="empty"):
        small(kernels=[]).fit(*make_series())


def test_something_else_than_a_kernel():
    with pytest.raises(TypeError, match="kernel"):
        small(kernels=[("name", "no kernel")]).fit(*make_series())
    with pytest.raises(TypeError, match="got 'SE'"):
        small(kernels=["SE"]).fit(*make_series())


def test_starting_values_respect_the_bounds_of_the_user():
    X, y = make_series()
    kernel = Periodic(period_bounds=(1.2, 1.8)) + Linear()
    model = small(kernels=[("P", kernel)]).fit(X, y)
    assert 1.2 <= model.kernels_[0][1].kernels[0].period[0] <= 1.8


@dataclass(frozen=True, repr=False)
class Wave(Leaf):
    """A user's kernel: cosines of one period, in one input."""

    _names = ("period",)

    period: float = 1.0
    period_bounds: object = DEFAULT_BOUNDS

    def _phases(self, X):
        return 2.0 * np.pi * X[:, 0] / self.period

    def __call__(self, X, Z=None):
        return np.cos(self._phases(X)[:, None] - self._phases(X if Z is None else Z))

    def diag(self, X):
        return np.ones(len(X))

    def vjp(self, X, Z, K, dK):
        a, b = self._phases(X)[:, None], self._phases(X if Z is None else Z)
        slope = -dK * np.sin(a - b)
        dtheta = self._dtheta(period=-np.sum(slope * (a - b)))
        dX, dZ = (c * slope.sum(axis=i)[:, None] for i, c in ((1, 1.0), (0, -1.0)))
        dX, dZ = (2.0 * np.pi / self.period * d for d in (dX, dZ))
        return (dtheta, dX + dZ, None) if Z is None else (dtheta, dX, dZ)

    def vjp_diag(self, X, ddiag):
        return np.zeros(self.n_free), np.zeros_like(X)


@pytest.mark.parametrize("posterior", ["point", "gaussian"])
@pytest.mark.every_nth("posterior", 2)
def test_hyperparameters_of_any_name(posterior):
    X, _ = make_series(40)
    y = np.sin(2.0 * np.pi * X[:, 0] / 8.0) + 0.1 * np.cos(9.0 * X[:, 0])
    kernels = [("wave", Constant() * Wave(5.0)), ("line", Linear())]
    model = small(kernels=kernels, hyperparameter_posterior=posterior, n_inducing=8).fit(X, y)
    assert model.best_kernel_[0] == "wave"
    assert_allclose(model.best_kernel_[1].kernels[1].period, 8.0, rtol=0.1)


def test_variances_of_anova():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60)
    model = small(kernels=[Anova(), RBF()], max_iter=20).fit(X, y)
    assert np.isfinite(model.local_lower_bounds_).all()
    assert model.estimators_[0].kernel != Anova()
    assert model.score(X, y) > 0.95


def test_parameters_of_a_vector():
    kernel, noise = parameters(RBF(), np.log([2.0, 0.5]))
    assert_allclose([kernel.length_scale, noise], [2.0, 0.5])


@pytest.mark.parametrize("n, is_evidence", [(48, True), (49, False)])
def test_starts_on_few_rows_are_compared_by_their_evidence(n, is_evidence):
    X, y = make_series(n)
    learner, targets = small(n_inducing=None)._learner(), Targets(y)
    state = learner.start(X, targets, np.random.RandomState(0), None)
    sample = draw_sample(state, X, targets, every_row=True)
    assert (sample.Z_coarse is None) == is_evidence
    assert is_evidence or sample.Z_coarse.shape == (48, 1)
    fewer = small(n_inducing=20)._learner()  # inducing inputs than rows
    state = fewer.start(X, targets, np.random.RandomState(0), None)
    assert draw_sample(state, X, targets, every_row=True).Z_coarse.shape == (20, 1)
