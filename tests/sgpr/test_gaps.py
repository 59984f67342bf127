"""Missing entries of X: rows that have them have more noise, by slopes that are learned."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer

from skvbgp import VBDTCRegressor, VBFITCRegressor
from skvbgp._core.linalg import JITTER
from skvbgp.base import Gaps
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._gapped import Gapped
from tests.gaps import check_measured_slopes, make_data
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import SOLVERS, small
from tests.sgpr.problems import (
    check_exact_gradient,
    check_gradient,
    mixture_of,
    random_q,
    small_problem,
)

WEIGHTS = 0.3 * np.array([1, 2, 3, 1, 1, 4, 2, 1, 1, 2, 1])
SLOPES = np.array([0.4, 2.0])
#: Variances of what is missing.
GAPS = np.zeros((11, 2))
GAPS[[0, 2, 5]] = [[0.5, 0.0], [0.2, 1.0], [0.0, 0.3]]


kinds = pytest.mark.parametrize("kind", ["dtc", "fitc"])
classes = pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])


def gap_problem(kind, weight=None):
    problem = small_problem(kind)
    p, structure = problem.parameters, Gapped(problem.model.structure, (0, 1), scale=1.3)
    return replace(
        problem,
        model=replace(problem.model, structure=structure),
        parameters=replace(p, noise_theta=np.append(p.noise_theta, np.log(SLOPES / 1.3))),
        data=replace(problem.data, weight=weight, gaps=GAPS),
    )


def noise_of(model):
    state = model._state
    return state.memory.noise if isinstance(state.memory, Mixture) else state.noise


def slopes_of(model):
    """Those that the model has learned, on the squared scale of y."""
    return noise_of(model).slopes * model._state.target.unit**2


def explained_by(model, filled, variance):
    """What inducing inputs explain of the noise's process at rows with gaps, squared scale of y."""
    noise = noise_of(model)
    explained = noise.far_variance(filled) - noise.marginal_variance(filled)
    return np.where(variance.any(axis=1), explained, 0.0) * model._state.target.unit**2


def measure_nlpd(model, X, y):
    return -np.mean(model.log_predictive_density(X, y))


# -- the bound ---------------------------------------------------------------------------------


@kinds
def test_value(kind):
    """Of the place of a row with gaps, FITC's noise kernel explains nothing."""
    problem, whole, q = gap_problem(kind), small_problem(kind), random_q(4)
    prior, C = problem.model.hyperprior, np.diag(whole.C.diagonal())
    if kind == "fitc":
        far = whole.noise_kernel(whole.data.X, whole.data.X) + 0.2 * np.eye(len(C))
        C = np.diag(np.where(GAPS.any(axis=1), far.diagonal(), C.diagonal()))
    C += np.diag([row @ SLOPES for row in GAPS])
    arguments = problem.Z, *problem.moments_of_s(q), *problem.theta, C, prior.mean, prior.variance
    expected = oracles.bound(*problem.scaled, *arguments, JITTER)
    expected += norm(np.log(0.3), 1.0).logpdf(np.log(SLOPES)).sum()
    assert_allclose(problem.evaluation().gradient(q)[0], expected, rtol=1e-10)


@pytest.mark.parametrize("expectation", ["closed", "common", "by row"])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["rows", "weighted"])
@kinds
@pytest.mark.every_nth("expectation", 2)
@pytest.mark.every_nth("weight", 2)
def test_gradient(expectation, weight, kind):
    check_gradient(gap_problem(kind, weight), expectation)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["rows", "weighted"])
@kinds
@pytest.mark.every_nth("kind", 2)
def test_exact_gradient(weight, kind):
    check_exact_gradient(mixture_of(gap_problem(kind, weight)))


# -- the estimators ----------------------------------------------------------------------------


@classes
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("solver", 4)
def test_rows_with_gaps_are_noisy_ones(cls, solver, rng):
    """Training and predictions are those of the filled rows, each with its own noise."""
    X, y = make_data(60, rng)
    model = small(cls, solver, learn_hyperparameters=False, n_inducing=60).fit(X, y)
    gaps = Gaps.of(X)
    filled, variance = gaps.fill(X)
    own = variance @ slopes_of(model) + explained_by(model, filled, variance)
    plain = small(cls, solver, learn_hyperparameters=False, n_inducing=60)
    plain.fit(filled, y, y_var=own)
    prior = 3.0 * norm.logpdf(0.0)  # the slopes are where they start
    assert_allclose(model.lower_bound_, plain.lower_bound_ + prior, rtol=1e-8)
    T, t = make_data(9, rng, share=0.0)
    T[::2, 1] = np.nan
    new, new_variance = gaps.fill(T)
    f_var = new_variance @ slopes_of(model)
    y_var = f_var + explained_by(model, new, new_variance)
    for options in ({"return_std": True}, {"return_cov": True}):
        said, expected = model.predict(T, **options), plain.predict(new, **options, y_var=y_var)
        assert_allclose(said[0], expected[0], rtol=1e-7, atol=1e-9)
        assert_allclose(said[1], expected[1], rtol=1e-6, atol=1e-9)
    expected = plain.log_predictive_density(new, t, y_var=y_var)
    assert_allclose(model.log_predictive_density(T, t), expected, rtol=1e-7, atol=1e-9)
    f_std = model.predict(T, True, include_noise=False)[1]
    assert np.all(f_std[::2] > np.sqrt(f_var[::2]))  # f is not known there
    left_out = model.loo_predict(X, y)
    expected = plain.loo_predict(filled, y, y_var=own)
    assert_allclose(left_out, expected, rtol=1e-6, atol=1e-8)


@classes
@pytest.mark.every_nth("cls", 2)
def test_slopes_are_learned(cls, rng):
    """The last input says nothing, so that it does no harm if it is missing."""
    X, y = make_data(100, rng)
    model = small(cls, "collapsed", n_inducing=30, max_iter=25).fit(X, y)
    slopes = slopes_of(model) / np.var(y)
    assert slopes[2] < 0.2 * slopes[:2].min()
    fresh = clone(model).fit(np.where(np.isnan(X), 0.0, X), y)
    assert model.noise_variance_ < 0.5 * fresh.noise_variance_


def test_slopes_of_inputs_without_gaps_are_measured(rng):
    model = small(VBDTCRegressor, "collapsed", n_inducing=40, max_iter=40)
    check_measured_slopes(model, rng)


def test_noise_of_places_that_are_not_known_is_that_of_far_away(rng):
    """What a row has of its own does not depend on what takes the place of a gap."""
    X, y = make_data(60, rng)
    model = small(VBFITCRegressor, "collapsed", n_inducing=60).fit(X, y)
    T = np.column_stack([rng.uniform(-2.0, 2.0, 20), np.full(20, np.nan), rng.normal(size=20)])
    f_std, y_std = (model.predict(T, True, include_noise=noise)[1] for noise in (False, True))
    far = model.noise_kernel_.diag(np.zeros((20, 3))) + model.noise_variance_
    assert_allclose(y_std**2 - f_std**2, far, rtol=1e-6)
    place = np.zeros((1, 3))
    noise = noise_of(model)
    assert_allclose(noise.far_variance(place), noise.marginal_variance(place + 1e3))
    assert noise.far_variance(place) > 1.1 * noise.marginal_variance(place)


@classes
@pytest.mark.every_nth("cls", 2)
def test_gaps_that_come_later_in_a_stream(cls, rng):
    """The input that had none gets a slope; the sums over the rows before do not change."""
    X, y = make_data(80, rng, share=0.0)
    later = X[50:].copy()
    later[::3, 1] = np.nan
    settings = {"learn_hyperparameters": False, "inducing_inputs": X[:50:2]}
    model = small(cls, **settings, noise_variance=0.1).fit(X[:50], y[:50])
    model.partial_fit(later, y[50:])
    gaps = Gaps.of(X[:50])
    filled, variance = gaps.fill(later)
    y_var = variance[:, [1]] @ slopes_of(model) + explained_by(model, filled, variance)
    plain = small(cls, **settings, noise_variance=0.1).fit(X[:50], y[:50])
    plain.partial_fit(filled, y[50:], y_var=y_var)
    assert_allclose(model.predict(X, True), plain.predict(X, True), rtol=1e-7)
    learning = small(cls, "collapsed").fit(X[:50], y[:50]).partial_fit(later, y[50:])
    assert np.isfinite(learning.predict(later, True)).all()
    warm = learning.set_params(warm_start=True).fit(later, y[50:])
    assert warm._state.model.structure.gap_columns == (1,)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_rows_that_are_all_missing_have_the_prior_of_the_columns(share, rng):
    X, y = make_data(80, rng, share=share)
    model = small(VBDTCRegressor, "collapsed").fit(X, y)
    mean, std = model.predict(np.full((2, 3), np.nan), True)
    assert np.isfinite(mean).all() and np.all(std > 0.3 * np.std(y))


@classes
@pytest.mark.every_nth("cls", 2)
def test_few_rows_with_gaps(cls, rng):
    """Of columns, too, that have no entry at all, and one row after the other."""
    X, y = make_data(9, rng, share=0.3)
    X[:, 1] = np.nan
    model = small(cls, "collapsed", max_iter=2).fit(X, y)
    assert np.isfinite(model.predict(X, True)).all()
    stream = small(cls, "collapsed", max_iter=2)
    for i in range(9):
        stream.partial_fit(X[i : i + 1], y[i : i + 1])
    assert_allclose(stream.predict(X, True), model.predict(X, True), rtol=1e-6)


@classes
@pytest.mark.every_nth("cls", 2)
def test_copies_of_rows_with_gaps_are_weights(cls, rng):
    X, y = make_data(40, rng)
    weight = np.repeat([1, 2], 20)
    model = small(cls, "collapsed", max_iter=5)
    expected = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    model.fit(X, y, sample_weight=weight)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-8)


def test_importances_and_draws_of_a_model_with_gaps(rng):
    X, y = make_data(120, rng)
    model = small(VBDTCRegressor, "collapsed", max_iter=30).fit(X, y)
    assert np.argmin(model.feature_importances_) == 2
    draws = model.sample_function(3)
    assert draws(np.nan_to_num(X)).shape == (120, 3)
    for say in (draws, model.predict_gradient):
        with pytest.raises(ValueError, match="NaN"):
            say(X)


def test_outputs_have_gaps(rng):
    X, y = make_data(60, rng)
    model = small(VBDTCRegressor, "collapsed", max_iter=5)
    both = clone(model).fit(X, np.column_stack([y, -y]))
    assert_array_equal(both.predict(X)[:, 0], clone(model).fit(X, y).predict(X))


@pytest.mark.thorough
@classes
def test_predictions_are_better_than_behind_imputers(cls, rng):
    X, y = make_data(300, rng)
    T, t = make_data(200, rng)
    model = small(cls, "collapsed", max_iter=30, n_inducing=40)
    ours = measure_nlpd(clone(model).fit(X, y), T, t)
    for imputer in (SimpleImputer(), IterativeImputer(random_state=0)):
        filled, new = imputer.fit_transform(X), imputer.transform(T)
        assert ours < measure_nlpd(clone(model).fit(filled, y), new, t) - 0.1


def test_new_rows_of_dask_have_gaps(rng):
    """Those to learn from have none, see test_sharded."""
    da = pytest.importorskip("dask.array")
    X, y = make_data(30, rng)
    model = small(VBDTCRegressor, "collapsed", max_iter=2).fit(X, y)
    assert_allclose(model.predict(da.from_array(X)).compute(), model.predict(X), rtol=1e-8)
