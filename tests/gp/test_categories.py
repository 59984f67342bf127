"""Inputs that are categories."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from skvbgp import VBGPRegressor
from skvbgp._core import row_methods
from skvbgp.base import _categories
from skvbgp.base._categories import Categories, find_columns
from skvbgp.gp._process import Process
from skvbgp.kernels import RBF, Matern
from tests.derivatives import numerical_gradient

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNEL = 1.5 * Matern([1.0, 0.8, 3.0], nu=1.5)
EFFECT = {"a": 0.0, "b": 1.0, "c": -2.0}


def make_data(n, rng):
    """Numbers, strings, numbers, and targets that depend on the first two inputs."""
    x, z, c = rng.standard_normal(n), rng.standard_normal(n), rng.choice(list("abc"), n)
    X = np.array([x, c, z], dtype=object).T
    return X, np.sin(x) * (1.0 + np.vectorize(EFFECT.get)(c)) + 0.05 * rng.standard_normal(n)


def make_model(**parameters):
    settings = {"kernel": KERNEL, "learn_hyperparameters": False, "categorical_features": [1]}
    return VBGPRegressor(**(settings | parameters))


def distance(X, Z, length_scale):
    """Literally: squared differences of numbers, and one for two categories that differ."""
    r2 = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            parts = [(x[0] - z[0]) ** 2, float(x[1] != z[1]), (x[2] - z[2]) ** 2]
            r2[i, j] = np.sum(np.array(parts, dtype=float) / np.square(length_scale))
    return r2


def test_predictions_are_those_of_the_overlap_kernel(rng):
    X, y = make_data(40, rng)
    T = make_data(6, rng)[0]
    T[0, 1] = "unknown"
    mean, std = make_model(normalize_y=False).fit(X, y).predict(T, True)

    def k(A, B):
        s = np.sqrt(3.0 * distance(A, B, [1.0, 0.8, 3.0]))
        return 1.5 * (1.0 + s) * np.exp(-s)

    K = k(X, X) + 0.1 * np.eye(40)
    expected = k(T, X) @ np.linalg.solve(K, y)
    variance = 1.5 + 0.1 - np.sum(k(T, X).T * np.linalg.solve(K, k(T, X).T), axis=0)
    assert_allclose(mean, expected, rtol=1e-6)
    assert_allclose(std, np.std(y) * np.sqrt(variance), rtol=1e-6)


def test_shared_length_scales_have_the_gradient_of_differences(rng):
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    kernel = 1.5 * Matern([1.0, 0.8, 0.8, 0.8], nu=1.5) * RBF([2.0, 3.0, 3.0, 3.0])
    process = Process(kernel, 0.3, 5.0, (), (0, 1, 1, 1))
    assert len(process.vector) == 1 + 2 + 2 + 2
    changed = process.with_vector(process.vector + 0.1)
    assert_allclose(changed.vector, process.vector + 0.1)
    assert len(set(changed.kernel.kernels[1].length_scale)) == 2
    _, gradient = process.evidence(X, y)

    def evaluate(vector):
        return process.with_vector(vector).evidence(X, y)[0]

    assert_allclose(gradient, numerical_gradient(evaluate, process.vector), rtol=1e-5, atol=1e-6)
    assert len(process.log_prior()[1]) == len(process.bounds) == len(process.vector)


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 40])
def test_categories_are_learned(rng, n_neighbors):
    X, y = make_data(150, rng)
    settings = {"learn_hyperparameters": True, "max_iter": 8, "n_neighbors": n_neighbors}
    model = make_model(kernel=[("a", KERNEL)], random_state=0, **settings).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], True)
    assert np.sqrt(np.mean((mean - y[100:]) ** 2)) < 0.35 * np.std(y)
    new = X[100:].copy()
    new[:, 1] = "unknown"
    assert np.mean(model.predict(new, True)[1]) > 2.0 * np.mean(std)
    importances = model.feature_importances_
    assert importances.shape == (3,)
    assert importances[1] > 0.15 > 0.05 > importances[2]
    assert_allclose(importances.sum(), 1.0)
    assert len(model.kernels_[0][1].kernels[1].length_scale) == 3
    assert model.n_features_in_ == 3


def test_what_functions_say_of_categories(rng):
    X, y = make_data(40, rng)
    model = make_model(kernel=1.5 * RBF([1.0, 0.8, 3.0])).fit(X, y)
    mean, std = model.predict(X[:5], True, include_noise=False)
    functions = model.sample_function(1500, random_state=0)
    for bad in (X[:5, :2], np.hstack([X, X])[:5]):
        with pytest.raises(ValueError, match="features"):
            functions(bad)
    with pytest.raises(ValueError, match="Expected 2D|any features"):
        functions(X[0])
    values = functions(X[:5])
    drawn = functions.gradient(X[:5])
    assert_array_equal(np.isnan(drawn).all(axis=2), [[False, True, False]] * 5)
    assert_allclose(values.mean(axis=1), mean, atol=0.1)
    assert_allclose(values.std(axis=1), std, rtol=0.15)
    slope, slope_std = model.predict_gradient(X[:5])
    assert_array_equal(np.isnan(slope), [[False, True, False]] * 5)
    moved = X[:5].copy()
    moved[:, 0] = X[:5, 0] + 1e-5
    assert_allclose((model.predict(moved) - model.predict(X[:5])) / 1e-5, slope[:, 0], rtol=1e-3)
    assert np.all(slope_std[:, [0, 2]] > 0.0)
    assert_allclose(drawn[:, 0].mean(axis=1), slope[:, 0], atol=0.1)


def test_data_frames_name_their_categories(rng):
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame({"x": X[:, 0].astype(float), "c": X[:, 1], "z": X[:, 2].astype(float)})
    typed = frame.astype({"c": "category"})
    expected = make_model().fit(X, y).predict(X)
    for features, data in (("from_dtype", typed), (["c"], frame), ([False, True, False], frame)):
        model = make_model(categorical_features=features).fit(data, y)
        assert_allclose(model.predict(data), expected, rtol=1e-12)
        assert list(model.feature_names_in_) == ["x", "c", "z"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"z": "w"}))
    with pytest.raises(ValueError, match="names that X has not"):
        make_model(categorical_features=["d"]).fit(frame, y)
    assert find_columns(frame, "from_dtype") == ()


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
@pytest.mark.every_nth("kind", 2)
def test_polars_frames_name_their_categories(kind, rng):
    """Also where an entry is null, and in chunks that do not have all categories."""
    pl = pytest.importorskip("polars")
    X, y = make_data(40, rng)
    X[7, 1] = None
    c = pl.Series("c", X[:, 1].tolist(), dtype=pl.String)
    c = c.cast(pl.Categorical() if kind == "Categorical" else pl.Enum(list("abc")))
    x, z = X[:, [0, 2]].astype(float).T
    frame = pl.DataFrame({"x": x, "c": c, "z": z})
    assert find_columns(frame, "from_dtype") == (1,)
    assert find_columns(frame.with_columns(pl.col("c").cast(pl.String)), "from_dtype") == ()
    model = make_model(categorical_features="from_dtype").fit(frame[:30], pl.Series(y[:30]))
    model.partial_fit(frame[30:], y[30:])
    expected = make_model().fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    assert_allclose(model.predict(frame), expected.predict(X), rtol=1e-12)
    assert list(model.feature_names_in_) == ["x", "c", "z"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename({"z": "w"}))


def test_missing_values_are_a_category_and_gaps_stay_gaps(rng):
    X, y = make_data(60, rng)
    X[::5, 1] = None
    X[::7, 0] = np.nan
    model = make_model(learn_hyperparameters=True, max_iter=3).fit(X, y)
    mean, std = model.predict(X, True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0.0)


def test_numbers_beside_categories_may_be_of_any_type(rng):
    """Also those that pandas has NA for, and truth values."""
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame({"x": X[:, 0].astype(float), "c": X[:, 1], "z": X[:, 2].astype(float)})
    frame["z"] = np.where(frame["z"] > 0.0, 1.0, 0.0)
    frame.loc[::5, "z"] = np.nan
    expected = make_model().fit(frame, y).predict(frame)
    for kind in ("Int64", "Float64", "boolean"):
        typed = frame.assign(z=frame["z"].astype(kind))
        assert_array_equal(make_model().fit(typed, y).predict(typed), expected)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        make_model().fit(frame.assign(x=np.inf), y)
    with pytest.raises(TypeError, match="Timestamp") as error:
        make_model().fit(frame.assign(x=pd.Timestamp("2020-01-01")), y)
    assert "Make numbers of dates" in error.value.__notes__[0]


@pytest.mark.usefixtures("few_kernels", "unjudged")
@pytest.mark.parametrize("kernel", [KERNEL, "auto"])
@pytest.mark.parametrize("n_known", [2, 3])
@pytest.mark.every_nth("n_known", 2)
def test_a_warm_start_may_have_other_categories(kernel, n_known, rng):
    """More or fewer of them, with what was learned of the input."""
    X, y = make_data(60, rng)
    few = np.isin(X[:, 1], list("abc")[:n_known])
    options = {"kernel": kernel, "learn_hyperparameters": True, "max_iter": 3}
    model = make_model(**options, warm_start=True).fit(X[few], y[few])
    X[:5, 1] = "d"
    again = clone(model).fit(X, y)
    model.fit(X, y)
    assert len(model.kernels_) <= 3 * len(again.kernels_)
    assert np.std(y - model.predict(X)) < 0.5 * np.std(y)
    model.set_params(learn_hyperparameters=False).fit(X[few], y[few])
    assert np.isfinite(model.predict(X, True)).all()


def test_stream_and_outputs_keep_the_categories(rng):
    X, y = make_data(60, rng)
    stream = make_model()
    for i in range(0, 60, 20):
        stream.partial_fit(X[i : i + 20], y[i : i + 20])
    whole = make_model().fit(X, y)
    assert_allclose(stream.predict(X), whole.predict(X), rtol=1e-8)
    both = make_model().fit(X, np.column_stack([y, 2.0 * y]))
    assert_allclose(both.predict(X)[:, 1], 2.0 * whole.predict(X), rtol=1e-8)
    assert np.all(np.isfinite(cross_val_score(clone(whole), X, y, cv=3)))


@pytest.mark.parametrize("features", [[3], [-4], [True, False], [[0]], ["c"], [0.5]])
def test_columns_that_are_none_are_refused(rng, features):
    X, y = make_data(20, rng)
    with pytest.raises(ValueError, match="categorical_features must be names"):
        make_model(categorical_features=features).fit(X, y)


def test_whatever_is_missing_is_the_same_category(rng):
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame(X).astype({0: float, 2: float})
    frame.loc[::5, 1] = None
    tables = [frame.astype({1: kind}) for kind in ("object", "string", "category")]
    tables += [frame.astype({1: "string"}).astype({1: "category"}), frame.to_numpy()]
    for missing in (np.nan, pd.NA, float("nan")):
        tables.append(frame.to_numpy().copy())
        tables[-1][::5, 1] = missing
    tables.append(tables[-1].tolist())
    before = [table.copy() for table in tables]
    expected = make_model().fit(tables[0], y).predict(tables[0])
    for table in tables:
        model = make_model().fit(table, y)
        for other in tables[:1] if hasattr(table, "columns") else tables[4:]:
            assert_array_equal(model.predict(other), expected)
    assert all(
        np.asarray(a, object)[0, 1] is np.asarray(b, object)[0, 1]
        for a, b in zip(tables, before, strict=True)
    )


def test_arrow_tables_name_their_categories(rng):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    X, y = make_data(40, rng)
    columns = {"x": X[:, 0].astype(float), "c": X[:, 1].astype(str), "z": X[:, 2].astype(float)}
    table = pa.table(columns | {"c": pa.array(columns["c"]).dictionary_encode()})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    expected = make_model().fit(X, y).predict(X)
    for features in (["c"], "from_dtype"):
        for rows in (table, frame):
            model = make_model(categorical_features=features).fit(rows, y)
            assert_array_equal(model.predict(rows), expected)
    numbers = make_model(kernel=RBF(), categorical_features="from_dtype").fit(table.drop("c"), y)
    assert numbers.n_features_in_ == 2


def test_numbers_are_the_same_categories_in_any_table(rng):
    """A model of a frame may be asked of an array, as tools that explain it do."""
    pd = pytest.importorskip("pandas")
    X = np.column_stack([rng.standard_normal(40), np.arange(40) % 3, rng.standard_normal(40)])
    X[::7, 1] = np.nan
    y = X[:, 0] + np.nan_to_num(X[:, 1])
    tables = [X, X.astype(object), X.tolist(), pd.DataFrame(X), pd.DataFrame(X).convert_dtypes()]
    expected = make_model().fit(X, y).predict(X)
    for table in tables:
        model = make_model().fit(table, y)
        for other in tables:
            assert_array_equal(model.predict(other), expected)


def test_categories_of_another_kind_are_not_known(rng):
    X, y = make_data(40, rng)
    numbers = np.column_stack([X[:, 0], np.arange(40) % 3, X[:, 2]]).astype(float)
    for known, other in [(X, numbers), (numbers, X), (numbers, numbers.astype(str))]:
        model, unknown = make_model().fit(known, y), known.astype(object)
        unknown[:, 1] = "unknown"
        for rows in (other, other.tolist()):
            expected = unknown.copy()
            expected[:, [0, 2]] = np.asarray(rows, dtype=object)[:, [0, 2]]
            assert_array_equal(model.predict(rows), model.predict(expected))


def test_categories_of_one_input_are_of_one_kind(rng):
    X, y = make_data(40, rng)
    X[::3, 1] = 1
    with pytest.raises(TypeError, match="all strings or all numbers"):
        make_model().fit(X, y)


def test_the_parameter_matters_to_fit_alone(rng):
    X, y = make_data(40, rng)
    model, changed = (make_model().fit(X[:30], y[:30]) for _ in range(2))
    changed.set_params(categorical_features=None)
    assert_array_equal(changed.predict(X), model.predict(X))
    for one in (model, changed):
        one.partial_fit(X[30:], y[30:])
    assert_array_equal(changed.predict(X), model.predict(X))
    numbers = make_model(kernel=RBF(), categorical_features=None).fit(X[:, ::2], y)
    plain = numbers.predict(X[:, ::2])
    assert_array_equal(numbers.set_params(categorical_features=[1]).predict(X[:, ::2]), plain)


@pytest.mark.parametrize("bad", [np.zeros(20), ["a"] * 20, 3.0, np.zeros((20, 3, 1))])
def test_what_is_no_table_is_refused(bad):
    with pytest.raises(ValueError, match="Expected 2D|with dim 3"):
        make_model().fit(bad, np.arange(20.0))


def test_too_many_categories_are_refused(rng):
    X = np.column_stack([rng.standard_normal(300), np.arange(300.0), np.ones(300)])
    with pytest.raises(ValueError, match="Input 1 has 300 categories"):
        make_model().fit(X, X[:, 0])


def test_encoded_categories_are_at_a_distance_of_one(rng):
    X, _ = make_data(30, rng)
    X[-1, 1] = "unknown"
    categories = Categories.of(X[:-1], [1])
    encoded = categories.encode(X)[:, 2:]
    squared = np.sum((encoded[:, None] - encoded) ** 2, axis=2)
    assert_allclose(squared, X[:, None, 1] != X[:, 1], atol=1e-12)
    assert_array_equal(categories.owners, [0, 2, 1, 1, 1, 1])


def test_sparse_inputs_are_those_of_the_dense_ones(rng, monkeypatch):
    X = np.where(rng.uniform(size=(40, 3)) < 0.5, 0.0, rng.standard_normal((40, 3)))
    y = X[:, 0] + X[:, 1]
    dense = make_model(categorical_features=None).fit(X, y)
    sparse = make_model(categorical_features=None).fit(csr_array(X), y)
    assert_array_equal(sparse.predict(csr_array(X)), dense.predict(X))
    monkeypatch.setattr(_categories, "_MOST_ENTRIES", 100)
    with pytest.raises(ValueError, match=r"X is sparse and of shape \(40, 3\)"):
        sparse.fit(csr_array(X), y)


def test_sparse_frames_are_those_of_the_dense_ones(rng):
    pd = pytest.importorskip("pandas")
    X = np.where(rng.uniform(size=(40, 3)) < 0.5, 0.0, rng.standard_normal((40, 3)))
    y, frame = X[:, 0] + X[:, 1], pd.DataFrame(X, columns=list("abc"))
    for fill in (0.0, 1.0):
        sparse = frame.astype(pd.SparseDtype(float, fill))
        for columns in (None, ["b"]):
            dense = make_model(categorical_features=columns).fit(frame, y)
            model = make_model(categorical_features=columns).fit(sparse, y)
            assert_array_equal(model.predict(sparse), dense.predict(frame))
            assert_array_equal(model.feature_names_in_, frame.columns)


def test_sparse_arrays_of_another_shape_are_refused():
    x = coo_array(np.arange(20.0))
    with pytest.raises(ValueError, match="Expected 2D array, got a sparse one"):
        make_model(categorical_features=None).fit(x, np.arange(20.0))


def test_sparse_targets_are_refused(rng):
    y = coo_array(np.arange(20.0)[:, None])
    for X in (rng.standard_normal((20, 2)), csr_array((20, 2))):
        with pytest.raises(TypeError, match="y is sparse"):
            make_model(categorical_features=None).fit(X, y)


def test_sparse_rows_are_predicted_in_blocks(rng, monkeypatch):
    """Those of new rows that would not be made dense all at once."""
    X = np.where(rng.uniform(size=(40, 3)) < 0.5, 0.0, rng.standard_normal((40, 3)))
    y, y_var = X[:, 0] + X[:, 1], rng.uniform(0.1, 2.0, 40)
    model = make_model(categorical_features=None).fit(X[:30], y[:30])
    expected = (
        model.predict(X, True, y_var=y_var),
        model.predict_interval(X, y_var=y_var),
        model.predict_quantiles(X, 0.3),
        model.log_predictive_density(X, y, y_var=2.0),
    )
    monkeypatch.setattr(_categories, "_MOST_ENTRIES", 3 * 7)
    monkeypatch.setattr(row_methods, "_BLOCK_ENTRIES", 3 * 7)
    for kind in (csr_array, coo_array):
        rows = kind(X)
        said = (
            model.predict(rows, True, y_var=list(y_var)),
            model.predict_interval(rows, y_var=y_var),
            model.predict_quantiles(rows, 0.3),
            model.log_predictive_density(rows, y, y_var=2.0),
        )
        for one, other in zip(said, expected, strict=True):
            assert_allclose(one, other, rtol=1e-10)
    for n in (39, 7, 1):  # among them as many as a block has
        with pytest.raises(ValueError, match=f"y_var has {n} rows, but X has 35"):
            model.predict(csr_array(X[:35]), y_var=np.ones(n))
    with pytest.raises(ValueError, match="y has 39 rows, but X has 40"):
        model.log_predictive_density(csr_array(X), y[:39])
    with pytest.raises(ValueError, match="does not contain any features"):
        model.predict(coo_array(X[0]))
    with pytest.raises(ValueError, match="X is sparse and of shape"):
        model.predict(csr_array(X), return_cov=True)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_an_error_about_strings_names_the_parameter(rng, n_outputs):
    X, y = make_data(10, rng)
    with pytest.raises(ValueError, match="string to float") as error:
        make_model(categorical_features=None).fit(X, np.column_stack([y] * n_outputs))
    assert "categorical_features" in error.value.__notes__[0]
