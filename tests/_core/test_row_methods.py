"""Predictions of the rows of Dask collections."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier

from skvbgp import (
    DecoupledGPClassifier,
    DecoupledGPRegressor,
    EPDTCClassifier,
    SVBSSGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBGPClassifier,
    VBGPRegressor,
    VBPICRegressor,
    VBPITCRegressor,
)
from skvbgp.kernels import RBF
from tests.sgpr.cases import make_data
from tests.test_common import CLASSES, but_siblings, quickly_fitted

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.usefixtures("quick_searches"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X has feature names"),
]

REGRESSORS = [cls for cls in CLASSES if not is_classifier(cls())]
CLASSIFIERS = [cls for cls in CLASSES if is_classifier(cls())]
TRAINED = [
    DecoupledGPClassifier,
    DecoupledGPRegressor,
    SVBSSGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBGPRegressor,
    VBPICRegressor,
    VBPITCRegressor,
]
ROWS = 7


@pytest.fixture(autouse=True)
def _in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def model():
    X, y = make_data(60)
    return VBDTCRegressor(10, max_iter=2, random_state=0).fit(X, y)


def places(n=ROWS):
    return make_data(n)[0] + 0.1


def as_frame(X, npartitions=3):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    data = pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    return frames.from_pandas(data, npartitions=npartitions)


def assert_lazy(lazy, expected):
    """Equal values, and what is known of them before they are computed."""
    assert lazy.dtype == expected.dtype
    assert lazy.shape == expected.shape
    assert type(lazy._meta) is np.ndarray
    values = lazy.compute()
    assert values.dtype == expected.dtype
    assert_array_equal(values, expected) if expected.dtype.kind in "bOU" else assert_allclose(
        values, expected, rtol=1e-7, atol=1e-12
    )


@but_siblings("cls", REGRESSORS)
@pytest.mark.every_nth("cls", 4)
def test_regressors_say_the_same_of_the_rows_of_an_array(cls):
    model, X = quickly_fitted(cls), places()
    rows = da.from_array(X, chunks=(3, 1))
    assert_lazy(model.predict(rows), model.predict(X))
    for lazy, expected in [
        (model.predict(rows, return_std=True), model.predict(X, return_std=True)),
        (model.predict_interval(rows, 0.8), model.predict_interval(X, 0.8)),
    ]:
        assert isinstance(lazy, tuple)
        for one, two in zip(lazy, expected, strict=True):
            assert_lazy(one, two)
    assert_lazy(model.predict_quantiles(rows, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))
    assert_lazy(model.predict_quantiles(rows, 0.1), model.predict_quantiles(X, 0.1))
    y = np.arange(float(ROWS))
    expected = model.log_predictive_density(X, y)
    assert_lazy(model.log_predictive_density(rows, da.from_array(y, chunks=2)), expected)


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.every_nth("cls", 2)
def test_classifiers_say_the_same_of_the_rows_of_an_array(cls):
    model, X = quickly_fitted(cls), places()
    rows = da.from_array(X, chunks=3)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            assert_lazy(getattr(model, method)(rows), getattr(model, method)(X))


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask, with pandas 3.1
@pytest.mark.thorough
def test_of_a_frame_all_is_aligned_with_it(model, tmp_path):
    X = places()
    frame = as_frame(X)
    mean, std = model.predict(frame, return_std=True)
    assert (mean.name, std.name, mean.dtype) == ("mean", "std", np.float64)
    assert mean.divisions == frame.divisions
    frame.assign(mean=mean, std=std).to_parquet(tmp_path)
    import dask.dataframe

    stored = dask.dataframe.read_parquet(tmp_path).compute()
    assert_allclose(stored[["mean", "std"]].T, model.predict(X, return_std=True), rtol=1e-10)
    quantiles = model.predict_quantiles(frame, [0.1, 0.9])
    assert list(quantiles.columns) == ["0.1", "0.9"]
    assert_allclose(quantiles.compute(), model.predict_quantiles(X, [0.1, 0.9]), rtol=1e-10)
    density = model.log_predictive_density(frame, frame.x0)
    assert_allclose(density.compute(), model.log_predictive_density(X, X[:, 0]), rtol=1e-10)
    assert_allclose(mean.to_dask_array(lengths=True).map_blocks(np.sqrt), np.sqrt(model.predict(X)))


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.every_nth("cls", 3)
def test_columns_of_a_frame_are_the_classes(cls):
    model, X = quickly_fitted(cls), places()
    probabilities = model.predict_proba(as_frame(X))
    assert list(probabilities.columns) == ["False", "True"]
    assert_allclose(probabilities.compute(), model.predict_proba(X), rtol=1e-9)
    labels = model.predict(as_frame(X))
    assert labels.name == "label"
    assert_array_equal(labels.compute(), model.predict(X))


def test_a_part_without_rows(model):
    frame = as_frame(places())
    chosen = frame[frame.x0 > frame.x0.compute().median()]
    expected = model.predict(chosen.compute().to_numpy())
    assert_allclose(model.predict(chosen[chosen.x0 > 1e9]).compute(), [])
    assert_allclose(model.predict(chosen).compute(), expected, rtol=1e-10)


def test_several_outputs():
    X, y = make_data(30)
    Y = np.column_stack([y, X[:, 0], X[:, 1]])
    model, rows = (
        VBGPRegressor(RBF(), max_iter=1, random_state=0).fit(X, Y),
        da.from_array(X, chunks=(8, 1)),
    )
    for lazy, expected in [
        (model.predict(rows), model.predict(X)),
        (model.predict(rows, return_std=True)[1], model.predict(X, return_std=True)[1]),
        (model.predict_quantiles(rows, 0.1), model.predict_quantiles(X, 0.1)),
        (model.predict_quantiles(rows, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9])),
        (
            model.log_predictive_density(rows, da.from_array(Y, chunks=(9, 2))),
            model.log_predictive_density(X, Y),
        ),
    ]:
        assert_lazy(lazy, expected)
    frame = as_frame(X)
    mean, std = model.predict(frame, return_std=True)
    assert list(mean.columns) == ["mean_0", "mean_1", "mean_2"]
    assert_allclose(std.compute(), model.predict(X, return_std=True)[1], rtol=1e-7)
    quantiles = model.predict_quantiles(frame, [0.1, 0.9]).compute()
    assert_allclose(quantiles, model.predict_quantiles(X, [0.1, 0.9]).reshape(30, -1), rtol=1e-7)
    assert list(quantiles.columns[:3]) == ["0.1_0", "0.9_0", "0.1_1"]


def test_known_noise_of_new_rows_needs_them_in_memory():
    X = np.random.default_rng(0).standard_normal((20, 2))
    model = VBGPRegressor(RBF(), learn_hyperparameters=False).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="predict with y_var needs rows in memory"):
        model.predict(da.from_array(X, chunks=(10, 2)), return_std=True, y_var=0.1)


def test_scores_need_rows_in_memory():
    """And have scikit-learn's description."""
    X = np.random.default_rng(0).standard_normal((20, 2))
    for cls, y in ((VBGPRegressor, X[:, 0]), (VBGPClassifier, X[:, 0] > 0.0)):
        model = cls(RBF(), learn_hyperparameters=False).fit(X, y)
        assert model.score(X=X, y=y) > 0.5
        with pytest.raises(TypeError, match="score needs rows in memory"):
            model.score(da.from_array(X, chunks=(10, 2)), y)
        assert "sample_weight" in cls.score.__doc__


def test_columns_of_categories():
    X, y = make_data(30)
    data = as_frame(X).compute()
    data["x1"] = (data.x1 > 0.0).astype(str).astype("category")
    import dask.dataframe

    frame = dask.dataframe.from_pandas(data, npartitions=3)
    options = {"categorical_features": "from_dtype", "learn_hyperparameters": False}
    model = VBGPRegressor(RBF(), **options).fit(data, y)
    assert_allclose(model.predict(frame).compute(), model.predict(data), rtol=1e-6)
    model = VBGPClassifier(RBF(), **options).fit(data, y > np.median(y))
    p = model.predict_proba(frame).compute()
    assert_allclose(p, model.predict_proba(data), rtol=1e-6)
    with pytest.raises(TypeError, match="VBGPClassifier cannot be trained on Dask collections"):
        model.fit(frame, y > np.median(y))


class Counting(VBDTCRegressor):
    """Counts what is predicted, and how often it is sent."""

    n_calls = n_pickles = 0

    def predict(self, X, return_std=False, return_cov=False, *, include_noise=True):
        type(self).n_calls += not hasattr(X, "dask")
        return super().predict(X, return_std, return_cov, include_noise=include_noise)

    def __getstate__(self):
        type(self).n_pickles += 1
        return super().__getstate__()


@pytest.mark.parametrize("kind", [da.from_array, as_frame])
@pytest.mark.every_nth("kind", 2)
def test_one_task_for_each_block_gives_mean_and_std(kind):
    X, y = make_data(60)
    model = Counting(10, max_iter=2, random_state=0).fit(X, y)
    rows = da.from_array(X, chunks=20) if kind is da.from_array else as_frame(X)
    mean, std = model.predict(rows, return_std=True)
    Counting.n_calls = 0
    dask.compute(mean, std)
    assert Counting.n_calls == 3
    Counting.n_pickles = 0
    pickle.dumps(dict(mean.__dask_graph__()))
    assert Counting.n_pickles == 1


def test_later_fits_do_not_change_what_is_computed(model):
    model, X = copy.copy(model), places()
    lazy, expected = model.predict(da.from_array(X)), model.predict(X)
    model.fit(*make_data(40))
    assert_array_equal(lazy.compute(), expected)


def test_what_cannot_be_done_is_refused_at_once(model):
    X, y = make_data(20)
    rows, values = da.from_array(X, chunks=5), da.from_array(y, chunks=5)
    with pytest.raises(ValueError, match="joint covariance"):
        model.predict(rows, return_cov=True)
    with pytest.raises(ValueError, match="sample_y need"):
        model.sample_y(rows)
    with pytest.raises(ValueError, match="features"):
        model.predict(rows[:, :1])
    with pytest.raises(ValueError, match="2D array"):
        model.predict(values)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(rows, 2.0)
    with pytest.raises(TypeError, match="rows in memory"):
        model.score(rows, values)
    with pytest.raises(TypeError, match="X and y must all be"):
        model.log_predictive_density(rows, y)
    with pytest.raises(TypeError, match="X and y must all be"):
        model.log_predictive_density(X, values)
    with pytest.raises(TypeError, match="Delayed"):
        model.predict(dask.delayed(X))
    with pytest.raises(Exception, match="not fitted"):
        VBDTCRegressor().predict(rows)


def test_wrong_arguments_are_refused_with_the_name_of_the_method(model):
    with pytest.raises(TypeError, match=r"predict_interval\(\): got an unexpected .* 'alpha'"):
        model.predict_interval(places(), alpha=0.1)
    with pytest.raises(TypeError, match=r"predict\(\): missing a required argument: 'X'"):
        model.predict()


def test_feature_names_are_compared(model):
    X, y = make_data(20)
    frame = as_frame(X)
    named = clone(model).fit(frame.compute(), y)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame.rename(columns={"x0": "z"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        lazy = named.predict(da.from_array(X, chunks=10))
    assert_allclose(lazy.compute(), named.predict(frame).compute(), rtol=1e-10)


def test_variances_of_entries_are_a_collection_too():
    X, y = make_data(40)
    model = EPDTCClassifier(5, max_iter=2, random_state=0).fit(X, y > 10.0)
    variance = np.full(X.shape, 0.3)
    lazy = model.predict_proba(da.from_array(X, chunks=9), da.from_array(variance, chunks=10))
    assert_lazy(lazy, model.predict_proba(X, variance))


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls not in TRAINED])
def test_training_is_refused_elsewhere(cls):
    X, y = make_data(20)
    model = clone(quickly_fitted(cls))
    rows, targets = da.from_array(X), da.from_array(y > 10.0 if is_classifier(model) else y)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(TypeError, match="Dask collections"):
            method(rows, targets)
