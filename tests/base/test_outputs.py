"""Several outputs of the regressors: each is what it would be alone."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_regressor
from sklearn.callback import ProgressBar
from sklearn.multioutput import MultiOutputRegressor

import skvbgp
from skvbgp import DecoupledGPRegressor, SVBSSGPRegressor, VBDTCRegressor
from skvbgp.base import VariationalRegressor
from skvbgp.inspection import KernelPosteriorDisplay, LowerBoundDisplay, RelevanceDisplay
from skvbgp.metrics import get_scorer
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.fits import fit_alone
from tests.gp.cases import REGRESSORS as GP
from tests.kernel_selection.cases import INSTANCES as KERNEL_SELECTION
from tests.observer import Recorder
from tests.sgpr.cases import BLOCKED, INDEPENDENT, small
from tests.spectrum.cases import INSTANCES as SPECTRUM

pytestmark = pytest.mark.usefixtures("quick_searches")

SPARSE = [
    *(small(cls, solver) for cls in INDEPENDENT for solver in ("exact", "stochastic")),
    *(small(cls, solver) for cls in BLOCKED for solver in ("exact", "collapsed")),
]
STUDENT = clone(DECOUPLED[0]).set_params(likelihood="student_t")
REGRESSORS = [*SPARSE, DECOUPLED[0], STUDENT, *SPECTRUM[:2]]
REGRESSORS = [clone(e).set_params(max_iter=2) for e in REGRESSORS]
N, CHUNKS = 48, [slice(0, 8), slice(8, 30), slice(30, 36), slice(36, 48)]

#: What all have from one place: an exact and a stochastic one of the largest family here, and one
#: of each of the others; the rest is slow.
QUICK = [3, 6, 8, 10]
by_family = pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=repr(model), marks=[] if i in QUICK else pytest.mark.slow)
        for i, model in enumerate(REGRESSORS)
    ],
)


@pytest.fixture(scope="module")
def data():
    """Outputs of other scales. The second one is not in the third chunk, the third one always."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, 2))
    Y = np.column_stack([np.sin(X[:, 0]), 10.0 * np.cos(X[:, 1]) + 30.0, X[:, 0] * X[:, 1]])
    Y += 0.1 * rng.standard_normal(Y.shape)
    Y[::3, 1] = Y[2:8, 1] = Y[CHUNKS[2], 1] = np.nan
    return X, Y, rng.uniform(-2.5, 2.5, (9, 2))


def test_every_regressor_has_several_outputs():
    values = [getattr(skvbgp, name) for name in skvbgp.__all__]
    known = {v for v in values if isinstance(v, type) and issubclass(v, VariationalRegressor)}
    assert known == {type(e) for e in [*REGRESSORS, *GP, *KERNEL_SELECTION] if is_regressor(e)}


def assert_as_alone(model, alone, data):
    _, Y, T = data
    mean, std = model.predict(T, return_std=True)
    f, cov = model.predict(T, return_cov=True, include_noise=False)
    quantiles, (low, high) = model.predict_quantiles(T, [0.2, 0.7]), model.predict_interval(T)
    assert mean.shape == std.shape == f.shape == low.shape == high.shape == (9, 3)
    assert (cov.shape, quantiles.shape) == ((9, 9, 3), (9, 3, 2))
    for j, one in enumerate(alone):
        unit = np.nanstd(Y[:, j])
        expected = one.predict(T, return_std=True)
        assert_allclose((mean[:, j], std[:, j]), expected, rtol=0.0, atol=1e-12 * unit)
        f_alone, cov_alone = one.predict(T, return_cov=True, include_noise=False)
        assert_allclose(f[:, j], f_alone, rtol=0.0, atol=1e-12 * unit)
        assert_allclose(cov[..., j], cov_alone, rtol=0.0, atol=1e-12 * unit**2)
        expected = one.predict_quantiles(T, [0.2, 0.7])
        assert_allclose(quantiles[:, j], expected, rtol=0.0, atol=1e-12 * unit)
        expected = one.predict_interval(T)
        assert_allclose((low[:, j], high[:, j]), expected, rtol=0.0, atol=1e-12 * unit)


@pytest.mark.thorough
@by_family
def test_every_output_is_predicted_as_alone(model, data):
    X, Y, T = data
    fitted = clone(model).fit(X, Y)
    alone = [fit_alone(model, data, j) for j in range(3)]
    assert_as_alone(fitted, alone, data)
    assert (fitted.n_outputs_, alone[0].n_outputs_, fitted.n_samples_seen_) == (3, 1, N)
    assert fitted.n_iter_ == sum(one.n_iter_ for one in alone)
    assert_allclose(fitted.lower_bound_, [one.lower_bound_ for one in alone], rtol=1e-12)
    assert fitted.lower_bounds_[1] == alone[1].lower_bounds_
    y = np.array([[0.3, np.nan, np.nan]] * 4 + [[np.nan, 20.0, 1.0]] * 5)
    parts = [one.log_predictive_density(T, np.nan_to_num(y[:, j])) for j, one in enumerate(alone)]
    density = fitted.log_predictive_density(T, y)
    assert_allclose(density, [*parts[0][:4], *(parts[1] + parts[2])[4:]], rtol=1e-10)
    assert fitted.sample_y(T, 4).shape == fitted.sample_y(T, 4, include_noise=False).shape
    assert fitted.sample_y(T, 4).shape == (9, 3, 4)
    assert_allclose(pickle.loads(pickle.dumps(fitted)).predict(T), fitted.predict(T), rtol=1e-10)


@pytest.mark.thorough
@by_family
def test_stream_learns_of_every_output_what_it_would_alone(model, data):
    """In the second chunk, outputs that have been observed in few rows begin again."""
    X, Y, _ = data
    weight, y_var = np.arange(N) % 4 / 2.0, np.full((N, 3), [0.01, 0.0, 0.02])
    for given in ({"sample_weight": weight}, {"y_var": y_var}):
        if "y_var" in given and getattr(model, "likelihood", "gaussian") != "gaussian":
            continue
        stream = clone(model)
        for rows in CHUNKS:
            stream.partial_fit(X[rows], Y[rows], **{k: v[rows] for k, v in given.items()})
        alone = [fit_alone(model, data, j, CHUNKS, **given) for j in range(3)]
        assert_as_alone(stream, alone, data)
        assert stream.n_samples_seen_ == np.sum(given.get("sample_weight", np.ones(N)) > 0.0)


@pytest.mark.thorough
@by_family
def test_warm_start_of_every_output_is_that_of_its_own(model, data):
    X, Y, _ = data
    again = clone(model).set_params(warm_start=True).fit(X, Y).fit(X[:40], Y[:40])
    alone = []
    for j in range(3):
        seen = np.flatnonzero(~np.isnan(Y[:, j]))
        one = clone(model).set_params(warm_start=True).fit(X[seen], Y[seen, j])
        alone.append(one.fit(X[seen[seen < 40]], Y[seen[seen < 40], j]))
    assert_as_alone(again, alone, data)
    with pytest.raises(ValueError, match="y has 2 outputs, but there were 3"):
        again.fit(X, Y[:, [0, 2]])
    assert again.set_params(warm_start=False).fit(X, Y[:, [0, 2]]).predict(X).shape == (N, 2)


def test_as_scikit_learns_wrapper_and_its_shapes(data):
    X, Y, T = data
    model, Y = REGRESSORS[0], np.nan_to_num(Y)
    expected = MultiOutputRegressor(model).fit(X, Y).predict(T)
    assert_allclose(clone(model).fit(X, Y).predict(T), expected, rtol=1e-12)
    column, vector = clone(model).fit(X, Y[:, :1]), clone(model).fit(X, Y[:, 0])
    assert_array_equal(column.predict(T), vector.predict(T))
    assert column.n_outputs_ == 1
    assert isinstance(column.lower_bound_, float)


@pytest.mark.parametrize("model", [REGRESSORS[1], DECOUPLED[0]], ids=repr)
@pytest.mark.every_nth("model", 2)
def test_outputs_have_one_generator(model, data):
    """Equal columns are equal models, and it is moved on as by one output."""
    X, Y, T = data
    rng, other = np.random.RandomState(5), np.random.RandomState(5)
    twice = clone(model).set_params(random_state=rng).fit(X, Y[:, [0, 0]])
    once = clone(model).set_params(random_state=other).fit(X, Y[:, 0])
    assert_array_equal(twice.predict(T), np.column_stack([once.predict(T)] * 2))
    assert rng.uniform() == other.uniform()


def test_counts(data):
    X, Y, T = data
    model = DecoupledGPRegressor(20, 10, likelihood="poisson", max_iter=5, random_state=0)
    counts = np.round(np.exp(0.5 * Y[:, [0, 2]]))
    counts[::4, 1] = np.nan
    fitted, seen = clone(model).fit(X, counts), ~np.isnan(counts[:, 1])
    alone = clone(model).fit(X[seen], counts[seen, 1])
    assert_allclose(fitted.predict(T)[:, 1], alone.predict(T), rtol=1e-12)
    assert_array_equal(fitted.predict_quantiles(T, 0.9)[:, 1], alone.predict_quantiles(T, 0.9))
    draws = fitted.sample_y(T, 5)
    assert draws.shape == (9, 2, 5)
    assert_array_equal(draws, np.round(draws))
    density = fitted.log_predictive_density(T, np.full((9, 2), [np.nan, 2.0]))
    assert_allclose(density, alone.log_predictive_density(T, np.full(9, 2.0)), rtol=1e-12)
    with pytest.raises(ValueError, match="whole numbers"):
        clone(model).fit(X, counts - 0.5)


def test_draws_have_the_moments_of_every_output(data):
    """Which are independent."""
    X, Y, T = data
    for model in (REGRESSORS[0], DECOUPLED[0]):
        fitted = clone(model).fit(X, Y)
        mean, std = fitted.predict(T, return_std=True)
        draws = fitted.sample_y(T, 4000, random_state=1)
        assert_allclose(draws.mean(axis=2), mean, rtol=0.0, atol=0.1 * std.max())
        assert_allclose(draws.std(axis=2), std, rtol=0.1)
        assert_allclose(np.corrcoef(draws[0]), np.eye(3), atol=0.1)


def test_covariance_of_frequencies_of_every_output(data):
    X, Y, _ = data
    fitted = clone(SPECTRUM[0]).fit(X, Y)
    assert isinstance(fitted, SVBSSGPRegressor)
    for j, chol in enumerate(fitted.q_chol_):
        assert_allclose(chol, fit_alone(SPECTRUM[0], data, j).q_chol_, rtol=1e-12)


# -- calls that fail -----------------------------------------------------------------------------


@by_family
@pytest.mark.every_nth("model", 3)
def test_unfit_outputs_are_refused_and_change_nothing(model, data):
    X, Y, T = data
    fitted = clone(model).fit(X, Y)
    before, mean = dict(vars(fitted)), fitted.predict(T)
    never = np.column_stack([Y[:, 0], np.full(N, np.nan)])
    far = Y.copy()
    far[:, 2] *= 1e300  # found out when the first two outputs have been learned
    for method, y, given, match in [
        ("fit", never, {}, "Output 1 of y has no observed value"),
        ("fit", np.where(np.isnan(Y), np.inf, Y), {}, "infinity"),
        ("fit", far, {}, "spread"),
        ("fit", Y, {"sample_weight": np.zeros(N)}, "zero for all rows"),
        ("fit", Y[1:], {}, "inconsistent numbers of samples"),
        ("partial_fit", Y[:, 0], {}, "y has 1 outputs, but there were 3"),
        ("partial_fit", far, {}, "spread"),
        ("log_predictive_density", Y[:, :2], {}, "y has 2 outputs, but there were 3"),
    ]:
        with pytest.raises(ValueError, match=match):
            getattr(fitted, method)(X, y, **given)
        assert vars(fitted).keys() == before.keys()
        assert fitted.n_outputs_ == 3
        assert_array_equal(fitted.predict(T), mean)


def test_known_noise_of_outputs(data):
    X, Y, T = data
    fitted = clone(REGRESSORS[0]).fit(X, Y)
    std = fitted.predict(T, return_std=True)[1]
    told = fitted.predict(T, return_std=True, y_var=np.full((9, 3), [0.1, 2.0, 0.3]))[1]
    assert_allclose(told**2 - std**2, np.full((9, 3), [0.1, 2.0, 0.3]), rtol=1e-10)
    every = np.full((9, 3), [0.0, 2.0, 0.0])
    plain, wider = (np.ptp(fitted.predict_interval(T, y_var=v), axis=0) for v in (0.0, every))
    assert_array_equal(wider > plain, every > 0.0)
    with pytest.raises(ValueError, match="y_var has 2 columns, but y has 3"):
        fitted.fit(X, Y, y_var=np.ones((N, 2)))


def test_missing_values_of_nullable_columns(data):
    pandas = pytest.importorskip("pandas")
    X, Y, T = data
    frame = pandas.DataFrame(Y).astype("Float64")
    assert frame.isna().any(axis=None) and frame[1].dtype == "Float64"
    expected = clone(REGRESSORS[0]).fit(X, Y)
    model = clone(REGRESSORS[0]).fit(X, frame)
    assert_array_equal(model.predict(T), expected.predict(T))
    assert_array_equal(
        model.log_predictive_density(X, frame), expected.log_predictive_density(X, Y)
    )


def test_known_noise_of_one_output_may_be_a_column(data):
    X, Y, T = data
    vector = clone(REGRESSORS[0]).fit(X, Y[:, 0], y_var=np.full(N, 0.1))
    column = clone(REGRESSORS[0]).fit(X, Y[:, :1], y_var=np.full((N, 1), 0.1))
    expected = vector.predict(T, return_std=True, y_var=np.ones(9))
    assert_array_equal(column.predict(T, return_std=True, y_var=np.ones((9, 1))), expected)
    with pytest.raises(ValueError, match="y_var"):
        column.predict(T, y_var=np.ones((9, 2)))


def test_what_is_about_one_output_says_so(data):
    pytest.importorskip("matplotlib")
    X, Y, _ = data
    fitted = clone(REGRESSORS[0]).fit(X, Y)
    for display in (LowerBoundDisplay, RelevanceDisplay):
        with pytest.raises(ValueError, match="has 3 outputs, but this is about one"):
            display.from_estimator(fitted)
    flagship = clone(GP[0]).fit(X, Y[:, [0, 2]])
    with pytest.raises(ValueError, match="has 2 outputs, but this is about one"):
        KernelPosteriorDisplay.from_estimator(flagship)
    for y in (Y, Y[:, 0]):
        with pytest.raises(ValueError, match="predicts 3 outputs, but this is about one"):
            get_scorer("neg_crps")(fitted, X, y)


def test_collections_have_one_output(data):
    da = pytest.importorskip("dask.array")
    X, Y, T = data
    rows, y = da.from_array(X, chunks=(20, 2)), da.from_array(Y[:, 0], chunks=20)
    fitted = clone(SPECTRUM[0]).fit(X, Y)
    assert_allclose(fitted.predict(da.from_array(T)).compute(), fitted.predict(T), rtol=1e-10)
    with pytest.raises(ValueError, match="one output, but there were 3"):
        fitted.partial_fit(rows, y)


# -- callbacks -----------------------------------------------------------------------------------


@pytest.mark.thorough
@by_family
def test_models_of_half_way(model, data):
    """Those of the outputs after each other, the later ones after a pass."""
    X, Y, T = data
    recorder = Recorder(T)
    fitted = clone(model).set_callbacks(recorder).fit(X, Y)
    mean = fitted.predict(T)
    assert_array_equal(mean, clone(model).fit(X, Y).predict(T))
    assert len(recorder.models) == fitted.n_iter_
    for found in recorder.models[-2:]:
        assert_array_equal(found[:, :2], mean[:, :2])
    first = clone(model).set_callbacks(Recorder(T, 1)).fit(X, Y)
    assert_array_equal(recorder.models[0][:, 1:], first.predict(T)[:, 1:])
    for j in range(3):
        seen = ~np.isnan(Y[:, j])
        alone = clone(model).set_callbacks(Recorder(T, 1)).fit(X[seen], Y[seen, j])
        assert_array_equal(first.predict(T)[:, j], alone.predict(T))
    assert first.n_iter_ == 3 * alone.n_iter_


@pytest.mark.thorough
def test_stream_that_begins_again_may_be_stopped_and_knows_all_rows(data):
    X, Y, T = data
    model = VBDTCRegressor(8, solver="collapsed", max_iter=5, tol=0.0, random_state=0)
    stream, recorder = clone(model).fit(X[:8], Y[:8]), Recorder(T)
    stream.set_callbacks(recorder).partial_fit(X[8:], Y[8:])
    n_passes = len(recorder.models)
    assert n_passes > 3
    stopped = clone(model).fit(X[:8], Y[:8]).set_callbacks(Recorder(T, 1))
    assert_array_equal(stopped.partial_fit(X[8:], Y[8:]).predict(T), recorder.models[0])
    assert stopped.n_samples_seen_ == N


def test_progress_bar_of_all_outputs(data, capsys):
    pytest.importorskip("rich")
    X, Y, _ = data
    model = VBDTCRegressor(8, solver="collapsed", max_iter=4, tol=0.0, random_state=0)
    model.set_callbacks(ProgressBar()).fit(X, Y)
    assert model.n_iter_ == 12
    assert "100%" in capsys.readouterr().out
