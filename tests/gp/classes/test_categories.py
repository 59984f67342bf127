"""Inputs of the classifier that are categories, and its sparse ones."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skvbgp import VBGPClassifier
from skvbgp._core import row_methods
from skvbgp.base import _categories
from skvbgp.gp.classes._probit_process import ProbitProcess
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._start import free_length_scales, start_class_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Matern, RationalQuadratic
from skvbgp.kernels._compose import leaves
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import EFFECT, distance
from tests.observer import Observer
from tests.oracles import gp_classes as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNEL = 1.5 * Matern([1.0, 0.8, 3.0], nu=1.5)


def make_data(n, rng):
    """Numbers, strings, numbers, and two classes that depend on the first two inputs."""
    x, z, c = rng.standard_normal(n), rng.standard_normal(n), rng.choice(list("abc"), n)
    height = np.sin(2.0 * x) + np.vectorize(EFFECT.get)(c) + 0.3
    label = np.where(height + 0.2 * rng.standard_normal(n) > 0.0, "yes", "no")
    return np.array([x, c, z], dtype=object).T, label


def make_model(**parameters):
    settings = {"kernel": KERNEL, "learn_hyperparameters": False, "categorical_features": [1]}
    return VBGPClassifier(**(settings | parameters))


def learning(**parameters):
    return make_model(learn_hyperparameters=True, max_iter=3, random_state=0, **parameters)


@pytest.mark.parametrize("n_neighbors", ["auto", 40])
@pytest.mark.every_nth("n_neighbors", 2)
def test_probabilities_are_those_of_the_overlap_kernel(rng, n_neighbors):
    X, y = make_data(40, rng)
    T = make_data(6, rng)[0]
    T[0, 1] = "unknown"
    model = make_model(n_neighbors=n_neighbors).fit(X, y)

    def k(A, B):
        s = np.sqrt(3.0 * distance(A, B, [1.0, 0.8, 3.0]))
        return 1.5 * (1.0 + s) * np.exp(-s)

    counts = np.column_stack([y == "no", y == "yes"]).astype(float)
    frequencies = oracle.find_frequencies(counts)
    process = start_class_process(KERNEL, 3)
    for row, p in zip(T, model.predict_proba(T), strict=True):
        own = k(X, row[None])[:, 0], 1.5, counts, frequencies, process.process.noise
        moments = oracle.predict_place(k(X, X), *own)
        link = process.link.slope, process.link.damping, process.link.width
        assert_allclose(p, oracle.find_probabilities(*moments, frequencies, *link), rtol=1e-5)
    assert_array_equal(model.predict(T), model.classes_[model.predict_proba(T).argmax(axis=1)])


def test_categories_that_are_not_known_are_as_far_as_any(rng):
    """With a short length scale there, nothing is known of them but the frequencies."""
    X, y = make_data(40, rng)
    model = make_model(kernel=Matern([1.0, 0.01, 1.0], nu=1.5)).fit(X, y)
    new = X[:5].copy()
    new[:, 1] = "unknown"
    assert_allclose(model.predict_proba(new), np.tile(model.class_prior_, (5, 1)), rtol=1e-6)


@pytest.mark.parametrize("make", [ClassProcess, ProbitProcess])
@pytest.mark.parametrize("kernel", [RBF(1.5, isotropic=True), RationalQuadratic(isotropic=True)])
@pytest.mark.every_nth("kernel", 2)
def test_columns_of_an_input_share_a_length_scale(rng, make, kernel):
    """It counts once in the prior, and its gradient is that of differences."""
    X, labels = rng.standard_normal((12, 4)), np.eye(2)[rng.integers(2, size=12)]
    votes = Votes.of(X, labels)
    start = start_class_process(kernel, 4, owners=(0, 2, 1, 1))
    free = free_length_scales(make(start.process, 4))
    plain = free_length_scales(make(start_class_process(kernel, 3).process, 3))
    assert free.n_inputs == plain.n_inputs == 3
    assert len(free.vector) == len(plain.vector) == len(free.bounds)
    assert_allclose(free.log_prior()[0], plain.log_prior()[0])
    model = free.with_vector(free.vector + 0.1 * rng.standard_normal(len(free.vector)))
    assert len(set(model.kernel.length_scale)) == 3
    for evaluate, gradient in (
        (lambda v: model.with_vector(v).evidence(votes)[0], model.evidence(votes)[1]),
        (lambda v: model.with_vector(v).log_prior()[0], model.log_prior()[1]),
    ):
        expected = numerical_gradient(evaluate, model.vector)
        assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def list_scales(model):
    """Length scales of the kernels, without those of lines."""
    return [leaves(kernel)[0].length_scale for _, kernel in model.kernels_]


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 60])
def test_categories_are_learned(rng, n_neighbors):
    X, y = make_data(700, rng)
    model = VBGPClassifier(
        categorical_features=[1], n_neighbors=n_neighbors, max_iter=8, random_state=0
    ).fit(X[:200], y[:200])
    p = model.predict_proba(X[200:])[:, 1]
    assert np.mean((p > 0.5) == (y[200:] == "yes")) > 0.9
    new = X[200:].copy()
    new[:, 1] = "unknown"
    unsure = model.predict_proba(new)[:, 1]
    entropies = [-np.mean(q * np.log(q) + (1.0 - q) * np.log(1.0 - q)) for q in (p, unsure)]
    assert entropies[1] > 1.5 * entropies[0]
    scales = list_scales(model)
    assert all(len(scale) == 3 for scale in scales)
    names = [name for name, _ in model.kernels_]
    of_inputs = [scale for name, scale in zip(names, scales, strict=True) if "by input" in name]
    assert all(scale[2] > 2.0 * scale[0] for scale in of_inputs)
    assert model.n_features_in_ == 3


@pytest.mark.thorough
def test_overlapping_classes_of_two_categories(rng):
    """With more than 500 rows these get a likelihood of labels, whose columns are tied as well."""
    n = 600
    X = np.column_stack([rng.choice(list("abcd"), n), rng.choice(list("uvw"), n)]).astype(object)
    X = np.column_stack([X, rng.standard_normal(n)])
    height = np.where(X[:, 0] == "a", 1.0, -0.5) + 0.5 * X[:, 2].astype(float)
    y = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-height))
    model = VBGPClassifier(
        RBF([2.0, 2.0, 2.0]), categorical_features=[0, 1], max_iter=3, random_state=0
    ).fit(X, y)
    assert any("probit" in name for name, _ in model.kernels_)
    p = model.predict_proba(X)[:, 1]
    assert np.mean(p[X[:, 0] == "a"]) - np.mean(p[X[:, 0] != "a"]) > 0.2


def test_data_frames_name_their_categories(rng):
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame({"x": X[:, 0].astype(float), "c": X[:, 1], "z": X[:, 2].astype(float)})
    typed = frame.astype({"c": "category"})
    expected = make_model().fit(X, y).predict_proba(X)
    for features, data in (("from_dtype", typed), (["c"], frame), ([False, True, False], frame)):
        model = make_model(categorical_features=features).fit(data, pd.Series(y))
        assert_allclose(model.predict_proba(data), expected, rtol=1e-12)
        assert list(model.feature_names_in_) == ["x", "c", "z"]
    again = pickle.loads(pickle.dumps(clone(model).fit(frame, y)))
    assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert_array_equal(again.decision_function(frame), model.decision_function(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"z": "w"}))
    with pytest.raises(ValueError, match="names that X has not"):
        make_model(categorical_features=["d"]).fit(frame, y)


def test_polars_frames_name_their_categories(rng):
    pl = pytest.importorskip("polars")
    X, y = make_data(40, rng)
    X[7, 1] = None
    c = pl.Series("c", X[:, 1].tolist(), dtype=pl.String).cast(pl.Categorical())
    frame = pl.DataFrame({"x": X[:, 0].astype(float), "c": c, "z": X[:, 2].astype(float)})
    model = make_model(categorical_features="from_dtype").fit(frame, pl.Series(y))
    assert_allclose(model.predict_proba(frame), make_model().fit(X, y).predict_proba(X))


def test_missing_values_are_a_category_and_gaps_stay_gaps(rng):
    X, y = make_data(60, rng)
    X[::5, 1] = None
    X[::7, 0] = np.nan
    model = learning().fit(X, y)
    p = model.predict_proba(X)
    assert np.all(np.isfinite(p))
    other = X.copy()
    other[::5, 1] = "unknown"
    changed = np.abs(p - model.predict_proba(other)).max(axis=1)
    assert_array_equal(changed > 1e-6, np.arange(60) % 5 == 0)
    tight = make_model(kernel=Matern([1.0, 0.01, 1.0], nu=1.5)).fit(X, y)
    assert np.ptp(tight.predict_proba(X[::5]), axis=0).max() > 0.1  # it is known, unlike that one
    assert_allclose(tight.predict_proba(other[::5]), np.tile(tight.class_prior_, (12, 1)), 1e-6)


def test_streams_weights_and_routes(rng):
    X, y = make_data(60, rng)
    stream = make_model()
    for i in range(0, 60, 20):
        stream.partial_fit(X[i : i + 20], y[i : i + 20], classes=["no", "yes"])
    whole = make_model().fit(X, y)
    assert_allclose(stream.predict_proba(X), whole.predict_proba(X), rtol=1e-8)
    twice = make_model().fit(np.vstack([X, X[:9]]), np.append(y, y[:9]))
    weighted = make_model().fit(X, y, sample_weight=1.0 + (np.arange(60) < 9))
    assert_allclose(weighted.predict_proba(X), twice.predict_proba(X), rtol=1e-8)
    balanced = make_model(class_weight={"yes": 2.0}).fit(X, y)
    odds = np.divide(*whole.predict_proba(X).T[::-1])
    assert_allclose(np.divide(*balanced.predict_proba(X).T[::-1]), 2.0 * odds, rtol=1e-8)


@pytest.mark.thorough
def test_pipelines_and_searches(rng):
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame(X, columns=list("xcz")).astype({"x": float, "z": float})
    numbers = make_column_selector(dtype_include="number")
    first = make_column_transformer(("passthrough", numbers), remainder="passthrough")
    steps = make_pipeline(first.set_output(transform="pandas"), make_model())
    steps.set_params(vbgpclassifier__categorical_features=["remainder__c"])
    p = steps.fit(frame, y).predict_proba(frame)
    assert p.shape == (40, 2)
    search = GridSearchCV(
        make_model(categorical_features=["c"]), {"n_neighbors": [5, 40]}, scoring="neg_log_loss"
    ).fit(frame, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_categories_of_later_chunks_are_new_ones(rng):
    """Those of the first chunk stay the ones that are known, also when training begins again."""
    X, y = make_data(80, rng)
    late = np.where(np.arange(80) < 40, X[:, 1], "d")
    X[:, 1] = late
    model = learning().partial_fit(X[:40], y[:40], classes=["no", "yes"])
    model.partial_fit(X[40:], y[40:])  # as many again
    expected = X.copy()
    expected[40:, 1] = "e"
    assert_array_equal(model.predict_proba(X), model.predict_proba(expected))
    assert np.mean(model.predict(X[40:]) == y[40:]) > 0.6
    assert model._state.n_trained == 80


def test_new_categories_are_no_reason_to_learn_again(rng):
    """Though a column of what is read varies with them for the first time."""
    X, y = make_data(60, rng)
    X[:40, 1] = np.where(X[:40, 1] == "c", "b", X[:40, 1])
    model = learning().partial_fit(X[:40], y[:40], classes=["no", "yes"])
    model.partial_fit(X[40:], y[40:])
    assert model._state.n_trained == 40
    constant = X[:40].copy()
    constant[:, 1] = "a"
    model = learning().partial_fit(constant, y[:40], classes=["no", "yes"])
    model.partial_fit(X[40:], y[40:])
    assert model._state.n_trained == 60  # of that input, nothing was known


@pytest.mark.parametrize(
    "kernel", [pytest.param("auto", marks=pytest.mark.thorough), Matern([1.0, 0.8, 3.0], nu=1.5)]
)
def test_warm_starts_follow_inputs_whose_categories_change(rng, kernel):
    X, y = make_data(60, rng)
    more = X.copy()
    more[:10, 1] = "d"
    model = learning(kernel=kernel, warm_start=True).fit(X, y)
    before = {name for name, _ in model.kernels_}
    model.fit(more, y)
    assert {name for name, _ in model.kernels_} <= before
    kept = list_scales(model)
    model.set_params(learn_hyperparameters=False).fit(X, y)
    for one, other in zip(list_scales(model), kept, strict=True):
        assert_allclose(one, other, rtol=1e-12)
        assert len(one) == 3
    with pytest.raises(ValueError, match="X has 4 features, but the fit before had 3"):
        model.fit(np.column_stack([X, X[:, 0]]), y)


class Predicting(Observer):
    """Notes what the model of every pass says."""

    def __init__(self, X):
        self.X, self.said = X, []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.parent is not None and fitted_estimator is not None:
            self.said.append(fitted_estimator.predict_proba(self.X))


def test_callbacks_predict_categories(rng):
    X, y = make_data(40, rng)
    callback = Predicting(X)
    learning().set_callbacks(callback).fit(X, y)
    assert callback.said and np.isfinite(callback.said).all()


def test_truth_values_and_labels_of_any_kind(rng):
    pd = pytest.importorskip("pandas")
    X, y = make_data(40, rng)
    frame = pd.DataFrame({"x": X[:, 0].astype(float), "b": X[:, 1] == "a"})
    p = make_model(kernel=RBF(), categorical_features=["b"]).fit(frame, y).predict_proba(frame)
    texts = frame.assign(b=np.where(frame["b"], "yes", "no"))
    for kind in ("boolean", "category", "object"):
        for labels in (pd.Series(y, dtype="category"), y == "yes", np.where(y == "yes", 3, 2)):
            model = make_model(kernel=RBF(), categorical_features=["b"])
            model.fit(frame.astype({"b": kind}), labels)
            assert_allclose(model.predict_proba(frame), p, rtol=1e-10)
            assert set(model.predict(frame)) <= set(labels)
    model = make_model(kernel=RBF(), categorical_features=["b"]).fit(texts, y)
    assert_allclose(model.predict_proba(texts), p, rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X[:, [1]],
        lambda X: np.column_stack([np.full(len(X), "a"), X[:, 1], np.zeros(len(X))]),
        lambda X: np.column_stack([X[:, 0], X[:, 1], np.arange(len(X)).astype(str)]),
        lambda X: np.column_stack([X[:, 0], np.where(np.arange(len(X)) == 3, "once", X[:, 1])]),
    ],
    ids=["alone", "constant", "all distinct", "seen once"],
)
@pytest.mark.usefixtures("few_kernels")
@pytest.mark.every_nth("make", 4)
def test_tables_of_which_little_varies(rng, make):
    X, y = make_data(40, rng)
    table = make(X).astype(object)
    features = [j for j in range(table.shape[1]) if isinstance(table[0, j], str)]
    model = learning(kernel="auto", categorical_features=features).fit(table, y)
    p = model.predict_proba(table)
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.mean(model.predict(table) == y) > 0.65


def test_streams_of_single_rows(rng):
    """Their categories are those of the first one, and others."""
    X, y = make_data(7, rng)
    model = learning()
    for i in range(7):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=["no", "yes"])
    other = X.copy()
    other[X[:, 1] != X[0, 1], 1] = "other"
    assert_allclose(model.predict_proba(other), model.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize("features", [[3], [-4], [True, False], [[0]], ["c"], [0.5]])
def test_columns_that_are_none_are_refused(rng, features):
    X, y = make_data(20, rng)
    with pytest.raises(ValueError, match="categorical_features must be names"):
        make_model(categorical_features=features).fit(X, y)


def test_the_parameter_matters_to_fit_alone(rng):
    X, y = make_data(40, rng)
    model, changed = (make_model().fit(X[:30], y[:30]) for _ in range(2))
    changed.set_params(categorical_features=None)
    assert_array_equal(changed.predict_proba(X), model.predict_proba(X))
    for one in (model, changed):
        one.partial_fit(X[30:], y[30:])
    assert_array_equal(changed.predict_proba(X), model.predict_proba(X))


def test_a_failed_fit_keeps_the_categories(rng):
    X, y = make_data(40, rng)
    model = make_model().fit(X, y)
    before = model.predict_proba(X)
    for bad in (np.full(40, "no"), y[:30], np.where(y == "no", None, y)):
        with pytest.raises((TypeError, ValueError)):
            model.fit(X[::2].repeat(2, axis=0)[:, [0, 1, 1]], bad)
    assert_array_equal(model.predict_proba(X), before)


def test_sparse_inputs_are_those_of_the_dense_ones(rng, monkeypatch):
    X = np.where(rng.uniform(size=(40, 3)) < 0.5, 0.0, rng.standard_normal((40, 3)))
    y = X[:, 0] + X[:, 1] > 0.1
    dense = make_model(categorical_features=None).fit(X, y)
    sparse = make_model(categorical_features=None).fit(csr_array(X), y)
    assert_array_equal(sparse.predict_proba(csr_array(X)), dense.predict_proba(X))
    monkeypatch.setattr(_categories, "_MOST_ENTRIES", 3 * 7)
    with pytest.raises(ValueError, match=r"X is sparse and of shape \(40, 3\)"):
        sparse.fit(csr_array(X), y)
    monkeypatch.setattr(row_methods, "_BLOCK_ENTRIES", 3 * 7)
    for name in ("predict", "predict_proba", "decision_function"):
        expected = getattr(dense, name)(X)
        said = getattr(sparse, name)(coo_array(X))
        assert said.dtype == expected.dtype
        assert_allclose(said, expected, rtol=1e-10)
    assert sparse.score(csr_array(X), y) == dense.score(X, y)


def test_an_error_about_strings_names_the_parameter(rng):
    X, y = make_data(10, rng)
    with pytest.raises(ValueError, match="string to float") as error:
        make_model(categorical_features=None).fit(X, y)
    assert "categorical_features" in error.value.__notes__[0]
