"""scikit-learn's contract, for every public estimator and with no expected failure."""

import ast
import copy
import functools
import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks, estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

import skvbgp
import skvbgp._optim.convergence
from skvbgp import DecoupledGPClassifier
from skvbgp.kernels import RBF
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.ep.cases import INSTANCES as EP
from tests.gp.cases import INSTANCES as GP
from tests.kernel_selection.cases import INSTANCES as KERNEL_SELECTION
from tests.sgpr.cases import INSTANCES as SGPR
from tests.sgpr.cases import REGRESSORS as SPARSE_REGRESSORS
from tests.sgpr.cases import make_data
from tests.spectrum.cases import INSTANCES as SPECTRUM

pytestmark = pytest.mark.usefixtures("quick_searches")

ROOT = Path(__file__).parents[1]
# Every family's estimators, quick and with steps enough for the scores that scikit-learn asks for.
INSTANCES = [*GP, *SGPR, *DECOUPLED, *EP, *KERNEL_SELECTION, *SPECTRUM]
CLASSES = list(dict.fromkeys(map(type, INSTANCES)))
REGRESSORS = [instance for instance in INSTANCES if isinstance(instance, RegressorMixin)]
REGRESSOR_CLASSES = [cls for cls in CLASSES if issubclass(cls, RegressorMixin)]
FIRST = [next(instance for instance in INSTANCES if type(instance) is cls) for cls in CLASSES]
OTHER_SETTINGS = [instance for instance in INSTANCES if instance not in FIRST]
# The sparse regressors differ in their noise alone: by default, one stands for all.
SIBLINGS = [instance for instance in FIRST if type(instance) in SPARSE_REGRESSORS[:-1]]
SIBLING_CLASSES = [type(instance) for instance in SIBLINGS]


def but_siblings(name, cases, mark=pytest.mark.thorough):
    """A parameter of estimators or of classes, siblings marked."""
    marked = [
        pytest.param(case, marks=mark if case in [*SIBLINGS, *SIBLING_CLASSES] else [])
        for case in cases
    ]
    return pytest.mark.parametrize(name, marked, ids=repr if cases is FIRST else None)


# Checks of what training makes of the data; the others ask little more than what base does.
TRAINING_CHECKS = [
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
]


@pytest.fixture
def unmeasured_curvature(monkeypatch):
    """Draws are as wide in each hyperparameter: each of scikit-learn's ten inputs has one."""
    monkeypatch.setattr(
        "skvbgp._optim.maximum._measure_curvature", lambda process, _: np.eye(len(process.vector))
    )


def quickest(estimator):
    """An instance with a pass and a kernel, for what is not about the result of training."""
    given = estimator.get_params(deep=False)
    first = {k: given[k][:1] for k in ("kernel", "kernels") if isinstance(given.get(k), list)}
    return clone(estimator).set_params(max_iter=1, **first)


def quickly_fitted(cls):
    """A fitted instance of a class, on a few rows."""
    return copy.deepcopy(_quickly_fitted(cls))


@functools.cache
def _quickly_fitted(cls):
    X, y = make_data(20)
    estimator = clone(FIRST[CLASSES.index(cls)])
    return estimator.set_params(max_iter=1).fit(X, y > 10.0 if is_classifier(estimator) else y)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls.__name__ != "HybridGPLVM"])
@pytest.mark.every_nth("cls", 3)
def test_sparse_rows_are_those_of_the_dense_ones(cls):
    X, y = make_data(20)
    X[::2] = 0.0
    y = y > np.median(y) if is_classifier(cls()) else y
    dense, sparse = quickly_fitted(cls).fit(X, y), quickly_fitted(cls).fit(csr_array(X), y)
    assert_array_equal(sparse.predict(csr_array(X)), dense.predict(X))
    if hasattr(cls, "predict_proba"):
        assert_array_equal(sparse.predict_proba(csr_array(X)), dense.predict_proba(X))


def public_estimators():
    values = [getattr(skvbgp, name) for name in skvbgp.__all__]
    return {v for v in values if inspect.isclass(v) and issubclass(v, BaseEstimator)}


def is_of_training(check):
    name = check.func.__name__
    return name in TRAINING_CHECKS or bool(re.search("_train$|_classes$|_weight_", name))


def is_in_turn(estimator, check):
    """Whether a check of what base does is one that an estimator has by default: every third.

    No default is that of a thousand rows and ten columns where it takes more than half a second.
    """
    if isinstance(estimator, DecoupledGPClassifier) and "_train" in check.func.__name__:
        return False
    turn = CLASSES.index(type(estimator)) + crc32(check.func.__name__.encode())
    return is_of_training(check) or turn % 3 == 0


def checks_of(estimators, is_chosen=lambda estimator, check: True):
    """Scikit-learn's checks, or some of them."""
    every = parametrize_with_checks(estimators, xfail_strict=True)
    chosen = [
        pytest.param(*case, marks=[] if is_in_turn(*case) else pytest.mark.thorough)
        for case in every.args[1]
        if is_chosen(*case)
    ]
    ids = functools.cache(every.kwargs["ids"])  # one print of an estimator for all of its checks
    return pytest.mark.parametrize(every.args[0], chosen, ids=ids)


def contract(estimators, *, is_quick):
    """Checks of scikit-learn's that are quick, or the others, of which quick ones say the same."""
    return checks_of(estimators, lambda *case: says_its_own(*case) == is_quick)


#: Of two checks that differ in how a matrix is made, the one that stays says what the other does.
SAID_BY_ANOTHER = {
    "check_estimator_sparse_matrix": "check_estimator_sparse_array",
    "check_sample_weight_equivalence_on_sparse_data": (
        "check_sample_weight_equivalence_on_dense_data"
    ),
}


def says_its_own(estimator, check):
    """Whether a check of a first instance meets what no quicker one does.

    Rows that may not be written to are copied when they have another type; sparse rows are those of
    the dense ones (see above), whatever holds them; and the weights of classes have tests in each
    family, without a thousand passes.
    """
    name = check.func.__name__
    if name == "check_estimator_sparse_array":  # ten kinds of them, which one module reads
        return isinstance(estimator, skvbgp.VBGPRegressor | skvbgp.HybridGPLVM)
    if name in ("check_regressors_train", "check_classifiers_train"):
        return check.keywords.get("readonly_memmap", False) and "X_dtype" not in check.keywords
    is_long = isinstance(estimator, DecoupledGPClassifier)
    return name not in SAID_BY_ANOTHER and not (
        is_long and name == "check_class_weight_classifiers"
    )


CHECKED = [e for e in FIRST if e not in SIBLINGS]


@contract(CHECKED, is_quick=True)
@pytest.mark.usefixtures("unmeasured_curvature")
def test_contract(estimator, check, monkeypatch):
    if not is_of_training(check):
        estimator = quickest(estimator)
        X, y = estimator_checks._regression_dataset()
        monkeypatch.setattr(estimator_checks, "_regression_dataset", lambda: (X[:40], y[:40]))
    check(estimator)


@pytest.mark.slow
@contract(CHECKED, is_quick=False)
def test_contract_that_takes_longer(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks_of([*SIBLINGS, *OTHER_SETTINGS])
def test_contract_of_siblings_and_with_other_settings(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", TRAINING_CHECKS)
@pytest.mark.parametrize("estimator", OTHER_SETTINGS, ids=repr)
@pytest.mark.in_turn("check")
@pytest.mark.usefixtures("unmeasured_curvature")
@pytest.mark.every_nth("estimator", 2)
@pytest.mark.every_nth("check", 3)
def test_training_with_other_settings(estimator, check):
    getattr(estimator_checks, check)(type(estimator).__name__, clone(estimator))


@pytest.mark.parametrize("estimator", OTHER_SETTINGS, ids=repr)
@pytest.mark.slow
def test_score_with_other_settings(estimator):
    name = type(estimator).__name__
    if is_classifier(estimator):
        estimator_checks.check_classifiers_train(name, clone(estimator))
    else:
        estimator_checks.check_regressors_train(name, clone(estimator))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_parameters_are_validated(cls):
    """A check that scikit-learn runs on its own estimators but does not yield to third parties."""
    estimator_checks.check_param_validation(cls.__name__, clone(FIRST[CLASSES.index(cls)]))


@but_siblings("estimator", FIRST)
@pytest.mark.every_nth("estimator", 3)
def test_subclasses_have_constructors_of_their_own(estimator):
    """With less to choose: the other parameters are attributes all the same."""
    base = type(estimator)
    given = quickest(estimator).get_params(deep=False)

    class Own(base):
        def __init__(self, max_iter=2, label="mine"):
            super().__init__(**given | {"max_iter": max_iter})
            self.label = label

    X, y = make_data(20)
    y = y > 10.0 if is_classifier(estimator) else y
    model = clone(Own(max_iter=1)).fit(X[:15], y[:15]).partial_fit(X[15:], y[15:])
    expected = base(**given).fit(X[:15], y[:15]).partial_fit(X[15:], y[15:])
    assert model.get_params() == {"max_iter": 1, "label": "mine"}
    assert_array_equal(model.predict(X), expected.predict(X))


KERNELS = ["kernel", "noise_kernel", "kernels"]


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.thorough)])
@but_siblings("cls", [cls for cls in CLASSES if cls().get_params().keys() & set(KERNELS)])
@pytest.mark.every_nth("cls", 6)
def test_parameters_of_kernels_are_searched(cls, n_jobs):
    """As kernels are; and nobody changes what another estimator has, or what has been learned."""
    X, y = make_data(20)
    y = y > np.median(y) if is_classifier(cls()) else y
    name = next(name for name in KERNELS if name in cls().get_params())
    given, path = 2.0 * RBF(1.5), name
    if name == "kernels":
        given, path = [("mine", given)], "kernels__mine"
    model = clone(FIRST[CLASSES.index(cls)]).set_params(max_iter=1, **{name: given}).fit(X, y)

    def search(key, values):
        steps = make_pipeline(StandardScaler(), model)
        grid = {f"{cls.__name__.lower()}__{key}": values}
        return GridSearchCV(steps, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(X, y)

    searched = search(f"{path}__k2__length_scale", [0.5, [1.0, 3.0]])
    scores = searched.cv_results_["mean_test_score"]
    expected = search(path, [2.0 * RBF(0.5), 2.0 * RBF([1.0, 3.0])])
    assert_array_equal(scores, expected.cv_results_["mean_test_score"])
    assert_array_equal(pickle.loads(pickle.dumps(searched)).predict(X), expected.predict(X))
    assert getattr(model, name) is given
    assert model.get_params()[path] == 2.0 * RBF(1.5)

    predictions, learned = model.predict(X), {k: repr(vars(model)[k]) for k in model._published}
    other = clone(model)
    model.set_params(**{f"{path}__k1__value": 7.0})
    assert pickle.loads(pickle.dumps(model)).get_params()[path] == 7.0 * RBF(1.5)
    assert other.get_params()[path] == 2.0 * RBF(1.5)
    assert_array_equal(model.predict(X), predictions)
    assert {k: repr(vars(model)[k]) for k in model._published} == learned


@but_siblings("estimator", FIRST, pytest.mark.slow)
@pytest.mark.every_nth("estimator", 5)
@pytest.mark.usefixtures("unmeasured_curvature")
def test_names_of_columns_are_kept(estimator):
    """Another such check."""
    name = type(estimator).__name__
    estimator_checks.check_dataframe_column_names_consistency(name, quickest(estimator))


def test_every_public_estimator_is_checked():
    assert set(CLASSES) == public_estimators()


@pytest.mark.parametrize("cls", CLASSES)
def test_no_check_is_declared_to_fail_or_skipped_by_a_tag(cls):
    tags = cls().__sklearn_tags__()
    assert not (tags.non_deterministic or tags.no_validation or tags._skip_test)
    assert not (tags.regressor_tags and tags.regressor_tags.poor_score)
    assert not (tags.classifier_tags and tags.classifier_tags.poor_score)
    assert tags.requires_fit


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("cls", CLASSES)
def test_rows_may_have_weights(cls, method):
    """So that scikit-learn's checks of weights are among those of the contract."""
    assert "sample_weight" in inspect.signature(getattr(cls, method)).parameters


def rescaled(cls, factor, offset):
    """A fitted regressor, the same of factor * y + offset, and new rows."""
    X, y = make_data(20)
    settings = {"learn_hyperparameters": False, "transforms": ["identity"]}
    regressor = clone(FIRST[CLASSES.index(cls)])
    regressor.set_params(**{k: v for k, v in settings.items() if k in regressor.get_params()})
    return regressor.fit(X, y), clone(regressor).fit(X, factor * y + offset), X[:5] + 0.1


@pytest.mark.parametrize("cls", REGRESSOR_CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_distributions_have_the_scale_of_y(cls):
    one, other, X = rescaled(cls, 10.0, 3.0)
    quantiles = one.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert quantiles.shape == (5, 3) and np.all(np.diff(quantiles, axis=1) > 0.0)
    assert_allclose(other.predict_quantiles(X, [0.1, 0.5, 0.9]), 10.0 * quantiles + 3.0, rtol=1e-5)
    interval = one.predict_interval(X, coverage=0.8)
    assert_allclose(np.transpose(interval), quantiles[:, [0, 2]])
    density = one.log_predictive_density(X, quantiles[:, 1])
    expected = other.log_predictive_density(X, 10.0 * quantiles[:, 1] + 3.0) + np.log(10.0)
    assert_allclose(density, expected, atol=1e-5)


@pytest.mark.parametrize("cls", [c for c in REGRESSOR_CLASSES if hasattr(c, "sample_function")])
@pytest.mark.every_nth("cls", 4)
def test_functions_have_the_scale_of_y(cls):
    one, other, X = rescaled(cls, 10.0, 3.0)
    functions, tenfold = (model.sample_function(3, random_state=0) for model in (one, other))
    values, slopes = functions(X), functions.gradient(X)
    assert values.shape == (5, 3) and slopes.shape == (*X.shape, 3)
    assert_allclose(tenfold(X), 10.0 * values + 3.0, rtol=1e-5, atol=1e-4)
    assert_allclose(tenfold.gradient(X), 10.0 * slopes, rtol=1e-5, atol=1e-4)
    for part, tenth in zip(one.predict_gradient(X), other.predict_gradient(X), strict=True):
        assert part.shape == X.shape
        assert_allclose(tenth, 10.0 * part, rtol=1e-5, atol=1e-4)
    shares = one.feature_importances_
    assert_allclose([shares.sum(), other.feature_importances_.sum()], 1.0)
    assert_allclose(other.feature_importances_, shares, atol=1e-6)


@pytest.mark.parametrize("cls", [c for c in REGRESSOR_CLASSES if hasattr(c, "sample_function")])
@pytest.mark.every_nth("cls", 4)
def test_functions_of_several_outputs_and_what_they_refuse(cls):
    pd = pytest.importorskip("pandas")
    X, y = make_data(20)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = clone(FIRST[CLASSES.index(cls)])
    fixed = {"learn_hyperparameters": False, "transforms": ["identity"], "max_iter": 1}
    model.set_params(**{k: v for k, v in fixed.items() if k in model.get_params()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(frame, np.column_stack([y, -2.0 * y, y]))
    functions = model.sample_function(4)
    assert functions(frame[:6]).shape == (6, 3, 4)
    assert functions.gradient(frame[:6]).shape == (6, 3, 2, 4)
    assert {part.shape for part in model.predict_gradient(frame[:6])} == {(6, 3, 2)}
    assert_allclose(model.feature_importances_.sum(), 1.0)
    for call in (functions, functions.gradient, model.predict_gradient):
        with pytest.raises(ValueError, match="feature names"):
            call(frame[["b", "a"]])
        with pytest.raises(ValueError, match="NaN"):
            call(frame.where(frame != frame.iloc[0]))
    for bad in (0, 1.5, "many"):
        with pytest.raises(ValueError, match="n must be"):
            model.sample_function(bad)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_html_links_to_the_documentation_of_a_public_name(cls):
    link = re.search(r'href="(https://skvbgp[^"]+)"', estimator_html_repr(cls())).group(1)
    module, name = re.search(r"/api/generated/(.+)\.(\w+)\.html$", link).groups()
    assert "._" not in module
    assert getattr(importlib.import_module(module), name) is cls


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_html_of_a_fitted_estimator(cls):
    html = estimator_html_repr(quickly_fitted(cls))
    assert cls.__name__ in html and "n_samples_seen_" in html


@pytest.mark.parametrize("cls", [c for c in CLASSES if hasattr(c, "feature_importances_")])
@pytest.mark.every_nth("cls", 3)
def test_no_look_at_a_model_measures_its_inputs(cls, monkeypatch):
    """Notebooks show it, and complete names of attributes: that must not take seconds."""
    model = quickly_fitted(cls)
    with monkeypatch.context() as patch:
        patch.setattr(cls, "_posterior", lambda self: pytest.fail("Something was predicted."))
        assert "feature_importances_" not in dir(cls())
        assert {"feature_importances_", "feature_importances_std_", "predict"} < set(dir(model))
        assert "feature_importances_" not in estimator_html_repr(model)
    assert len(model.feature_importances_) == model.n_features_in_


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e155, 1e300])
@pytest.mark.parametrize("method", ["predict", "partial_fit"])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("scale", 2)
def test_new_rows_whose_distance_has_no_square(cls, method, scale):
    """They are refused, or known to be far away from everything."""
    X, y = make_data(20)
    model = quickly_fitted(cls)
    y, before = y > 10.0 if is_classifier(model) else y, model.predict(X)
    try:
        result = getattr(model, method)(*([scale * X, y][: 1 + (method == "partial_fit")]))
    except ValueError as error:
        assert re.search("spreads? (of|away)", str(error))
        assert_array_equal(model.predict(X), before)
    else:
        assert np.isfinite(model.predict(X) if result is model else result).all()


@pytest.mark.parametrize("far", [1e6, 1e12, 1e60])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("far", 3)
def test_new_rows_that_are_far_away_take_nothing_from_others(cls, far):
    """Such as those with a code, like -1e12, for what is not known."""
    model, X = quickly_fitted(cls), make_data(20)[0][:5] + 0.1
    rows = np.vstack([X, np.full((1, X.shape[1]), -far)])
    if is_classifier(model):
        assert_allclose(model.predict_proba(rows)[:5], model.predict_proba(X), atol=1e-8)
        return
    for option in ("return_std", "return_cov"):
        one, other = (model.predict(values, **{option: True}) for values in (X, rows))
        assert_allclose(other[0][:5], one[0], atol=1e-7)
        assert_allclose(other[1][tuple([slice(5)] * one[1].ndim)], one[1], atol=1e-7)
    assert_allclose(np.diagonal(other[1]), model.predict(rows, return_std=True)[1] ** 2, rtol=1e-6)


@but_siblings("estimator", FIRST)
@pytest.mark.every_nth("estimator", 4)
def test_streams_may_reuse_their_arrays(estimator):
    """What a call was given may be written to before the next one: nothing keeps it.

    There are no weights, for which rows are picked, and so copied, in any case.
    """
    n = 10
    X, y = make_data(5 * n)
    rng = np.random.default_rng(1)
    rows = {"X": X, "y": np.where(y > 10.0, 1.0, 0.0) if is_classifier(estimator) else y}
    names = inspect.signature(estimator.partial_fit).parameters
    if "X_var" in names:
        rows["X_var"] = rng.uniform(0.1, 0.5, X.shape)
    if "y_var" in names:
        rows["y_var"] = rng.uniform(0.1, 0.5, len(X))
    classes = {"classes": [0.0, 1.0]} if is_classifier(estimator) else {}
    fresh, reusing = quickest(estimator), quickest(estimator)
    first, buffer = 3 * n, {}
    for start, stop in [(0, first), (first, first + n), (first + n, 5 * n)]:
        chunk = {name: values[start:stop] for name, values in rows.items()}
        fresh.partial_fit(**copy.deepcopy(chunk), **classes)
        for name, values in chunk.items():
            buffer.setdefault(name, np.empty_like(rows[name][:first]))[: len(values)] = values
        reusing.partial_fit(**{name: a[: stop - start] for name, a in buffer.items()}, **classes)
    method = "predict_proba" if is_classifier(estimator) else "predict"
    assert_allclose(getattr(reusing, method)(X), getattr(fresh, method)(X), atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        skvbgp.VBDTCRegressor(8, solver="collapsed", max_iter=2, random_state=0),
        skvbgp.SVBSSGPRegressor(8, max_iter=2, random_state=0),
        skvbgp.DecoupledGPRegressor(8, 8, max_iter=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.every_nth("model", 2)
def test_streams_without_end_keep_the_last_bounds(monkeypatch, model):
    X, y = make_data(80)
    model = clone(model).fit(X[:40], y[:40])
    whole = clone(model).fit(X[:40], y[:40])
    for i in range(40, 46):
        whole.partial_fit(X[[i]], y[[i]])
        with monkeypatch.context() as few:
            few.setattr(skvbgp._optim.convergence, "_KEPT_VALUES", 4)
            model.partial_fit(X[[i]], y[[i]])
    assert len(whole.lower_bounds_) == 8
    assert model.lower_bounds_ == whole.lower_bounds_[-4:]
    assert model.lower_bounds_[-1] == model.lower_bound_


def test_all_estimators_forget():
    assert all("forgetting" in cls().get_params() for cls in CLASSES)


@but_siblings("cls", REGRESSOR_CLASSES)
@pytest.mark.every_nth("cls", 6)
def test_streams_that_forget(cls):
    """What fades ends near the newest rows, as what begins with them does; a failure is undone."""
    X, y = make_data(60)
    X = X if cls is not skvbgp.VBKSRegressor else X[:, :1]
    estimator = clone(FIRST[CLASSES.index(cls)]).set_params(max_iter=2)
    y = np.where(np.arange(60) < 30, y + 100.0, y)
    plain, nothing, fading = (
        clone(estimator).set_params(**given)
        for given in ({}, {"forgetting": 1.0}, {"forgetting": 0.7})
    )
    for model in (plain, nothing, fading):
        for rows in (slice(30), slice(30, 45), slice(45, 60)):
            model.partial_fit(X[rows], y[rows])
        assert model.n_samples_seen_ == 60
    assert_allclose(plain.predict(X), nothing.predict(X), rtol=1e-6)
    assert np.abs(fading.predict(X[-10:]) - y[-10:]).max() < 10.0
    assert np.abs(plain.predict(X[-10:]) - y[-10:]).max() > 20.0
    before = fading.predict(X)
    with pytest.raises(ValueError, match="sample_weight"):
        fading.partial_fit(X, y, sample_weight=-1.0)
    assert_allclose(pickle.loads(pickle.dumps(fading)).predict(X), before, rtol=1e-10)
    for bad in (0.0, -2, 1.5):
        with pytest.raises(ValueError, match="forgetting"):
            clone(fading).set_params(forgetting=bad).partial_fit(X, y)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=repr)
@pytest.mark.parametrize(("n_outputs", "forgetting"), [(1, 1.0), (2, 0.9)])
@pytest.mark.every_nth("estimator", 4)
@pytest.mark.every_nth("n_outputs", 3)
def test_means_alone_are_those_that_come_with_deviations(estimator, n_outputs, forgetting):
    """Also where rows have weights and missing entries, and in streams that forget."""
    model = clone(estimator).set_params(max_iter=1)
    if estimator is not GP[2]:  # inducing inputs forget nothing
        model.set_params(forgetting=forgetting)
    X, y = make_data(40)
    if model.__sklearn_tags__().input_tags.allow_nan:
        X[::6, 1] = np.nan
    Y, weight = np.column_stack([y, X[:, 0]])[:, :n_outputs], 1.0 + np.arange(40) % 3
    for rows in (slice(30), slice(30, None)):
        model.partial_fit(X[rows], Y[rows], sample_weight=weight[rows])
    places = X[:9] + 0.1
    for options in ({}, {"include_noise": False}, {"y_var": 0.5}):
        expected, _ = model.predict(places, return_std=True, **options)
        assert_allclose(model.predict(places, **options), expected, rtol=1e-12)


@pytest.mark.parametrize("cls", REGRESSOR_CLASSES)
@pytest.mark.every_nth("cls", 3)
def test_known_noise_of_new_rows_is_in_all_that_is_said_of_them(cls):
    """Densities with it have the moments of predict, and quantiles are those of the densities."""
    model, X = quickly_fitted(cls), make_data(20)[0][:3] + 0.1
    y_var = np.array([0.0, 0.5, 4.0]) * model.predict(X, True)[1] ** 2
    mean, std = model.predict(X, True, y_var=y_var)
    y = mean + std * np.linspace(-15.0, 15.0, 3001)[:, None]  # (grid, rows)
    rows = np.tile(np.arange(3), len(y))
    density = np.exp(model.log_predictive_density(X[rows], y.ravel(), y_var=y_var[rows]))
    density, step = density.reshape(y.shape), y[1] - y[0]
    assert_allclose(density.sum(axis=0) * step, 1.0, rtol=1e-6)
    assert_allclose((density * y).sum(axis=0) * step, mean, atol=1e-5 * std.max())
    assert_allclose((density * (y - mean) ** 2).sum(axis=0) * step, std**2, rtol=1e-3)
    shares = [0.1, 0.5, 0.975]
    for p, quantile in zip(shares, model.predict_quantiles(X, shares, y_var=y_var).T, strict=True):
        below = (density * np.clip((quantile - y) / step + 0.5, 0.0, 1.0)).sum(axis=0) * step
        assert_allclose(below, p, atol=1e-5)
    ends = model.predict_interval(X, 0.9, y_var=y_var)
    expected = model.predict_quantiles(X, [0.05, 0.95], y_var=y_var)
    assert_allclose(np.transpose(ends), expected, rtol=1e-12)


@pytest.mark.parametrize("cls", REGRESSOR_CLASSES)
@pytest.mark.every_nth("cls", 2)
def test_known_noise_of_new_rows_that_there_cannot_be(cls):
    model, X = quickly_fitted(cls), make_data(20)[0][:3]
    said = [
        functools.partial(model.predict, X),
        functools.partial(model.predict_interval, X),
        functools.partial(model.predict_quantiles, X, 0.5),
        functools.partial(model.log_predictive_density, X, np.zeros(3)),
    ]
    for say in said:
        assert_array_equal(say(y_var=0.0), say())
        for bad in (-1.0, np.nan, np.ones(2), "much"):
            with pytest.raises(ValueError, match="y_var"):
                say(y_var=bad)
    for say in said[:3]:
        with pytest.raises(ValueError, match="include_noise"):
            say(include_noise=False, y_var=1.0)


def documented(cls, section):
    """Text of a numpydoc section of a class docstring."""
    text = inspect.cleandoc(cls.__doc__)
    return re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.M | re.S).group(1)


@pytest.mark.parametrize("cls", CLASSES)
def test_docstring_has_every_parameter_with_its_default(cls):
    entries = re.findall(r"^(\w+) : .*default=(.+)$", documented(cls, "Parameters"), re.M)
    expected = {p.name: p.default for p in inspect.signature(cls).parameters.values()}
    assert {name: ast.literal_eval(value) for name, value in entries} == expected


@pytest.mark.parametrize("cls", CLASSES)
def test_docstring_has_every_fitted_attribute(cls):
    names = dir(quickly_fitted(cls))
    fitted = {name for name in names if name.endswith("_") and not name.startswith("_")}
    headings = re.findall(r"^(\S[^:\n]*) : ", documented(cls, "Attributes"), re.M)
    assert {name for heading in headings for name in heading.split(", ")} == fitted


@pytest.mark.slow
def test_results_do_not_change_under_array_api_dispatch():
    """The check is skipped unless the variable is set before SciPy is imported."""
    code = (
        "from sklearn.utils.estimator_checks import check_array_api_input as check\n"
        "from tests.test_common import INSTANCES\n"
        "for estimator in INSTANCES:\n"
        "    check(type(estimator).__name__, estimator, array_namespace='numpy',\n"
        "          check_values=True, expect_only_array_outputs=False)\n"
        "    print('checked')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert run.stdout.split() == ["checked"] * len(INSTANCES), run.stderr[-2000:]


@but_siblings("estimator", [e for e in FIRST if hasattr(e, "loo_predict")])
@pytest.mark.every_nth("estimator", 3)
def test_rows_left_out_are_known_less_well(estimator):
    """Each family has literal twins; this is what all of them promise."""
    X, y = make_data(60)
    model = clone(estimator).fit(X, y)
    keeps_rows = not inspect.signature(model.loo_predict).parameters
    mean, std = model.loo_predict() if keeps_rows else model.loo_predict(X, y)
    assert mean.shape == std.shape == y.shape
    assert np.all(np.isfinite(mean)) and np.all(std > 0.0)
    seen, seen_std = model.predict(X, return_std=True)
    assert np.std(y - mean) > np.std(y - seen) and np.mean(std) > np.mean(seen_std)
