"""Scorers in scikit-learn's own model selection."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.callback import ScoringMonitor
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import VBDTCRegressor, VBGPClassifier
from skvbgp.inspection import CalibrationDisplay
from skvbgp.metrics import (
    coverage,
    crps,
    get_scorer,
    get_scorer_names,
    interval_score,
    make_scorer,
    negative_log_predictive_density,
)

FOLDS = KFold(3)
LOSSES = {
    "log_predictive_density": negative_log_predictive_density,
    "neg_crps": crps,
    "neg_interval_score": interval_score,
}


class KnownAnswer:
    """Predicts the first column, with a standard deviation of its second."""

    def predict(self, X, return_std=False):
        return (X[:, 0], X[:, 1]) if return_std else X[:, 0]


@pytest.fixture
def data(rng):
    X = rng.uniform(-1.0, 1.0, (60, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)


def quick(**parameters):
    return VBDTCRegressor(5, max_iter=3, random_state=0, **parameters)


def test_values(rng):
    X, y = rng.uniform(0.5, 2.0, (30, 2)), rng.uniform(0.5, 2.0, 30)
    weight = rng.uniform(0.0, 1.0, 30)
    for name, loss in LOSSES.items():
        expected = -loss(y, X[:, 0], X[:, 1], sample_weight=weight)
        assert get_scorer(name)(KnownAnswer(), X, y, sample_weight=weight) == expected
    assert get_scorer("coverage")(KnownAnswer(), X, y) == coverage(y, X[:, 0], X[:, 1])
    assert set(get_scorer_names()) == {*LOSSES, "coverage"}


def test_cross_validate_of_a_pipeline(data):
    scoring = {name: get_scorer(name) for name in get_scorer_names()} | {"r2": "r2"}
    model = make_pipeline(StandardScaler(), quick())
    scores = cross_validate(model, *data, scoring=scoring, cv=FOLDS, return_estimator=True)
    X, y = data
    for fold, (_, test) in enumerate(FOLDS.split(X)):
        mean, std = scores["estimator"][fold].predict(X[test], return_std=True)
        for name, loss in LOSSES.items():
            assert scores[f"test_{name}"][fold] == -loss(y[test], mean, std)


def test_a_search_selects_and_scores_by_it(data):
    scorer = get_scorer("log_predictive_density")
    pipeline = make_pipeline(StandardScaler(), quick(learn_hyperparameters=False))
    grid = {"vbdtcregressor__noise_variance": [100.0, 0.02, 1e4]}
    search = GridSearchCV(pipeline, grid, scoring=scorer, cv=FOLDS).fit(*data)
    assert search.best_index_ == 1
    expected = scorer(search.best_estimator_, *data)
    assert search.score(*data) == expected
    assert scorer(search, *data) == expected  # as in a nested cross-validation


def test_estimators_of_others(data):
    scorer = get_scorer("log_predictive_density")
    exact = GaussianProcessRegressor(alpha=0.01).fit(*data)
    mean, std = exact.predict(data[0], return_std=True)
    assert scorer(exact, *data) == -negative_log_predictive_density(data[1], mean, std)
    with pytest.raises(TypeError, match="return_std"):
        scorer(LinearRegression().fit(*data), *data)


def test_a_prediction_without_standard_deviation(data):
    class Mean:
        def predict(self, X, return_std):
            return X[:, 0]

    with pytest.raises(TypeError, match="of Mean must return the mean and the standard deviation"):
        get_scorer("neg_crps")(Mean(), *data)


def test_in_a_callback(data):
    monitor = ScoringMonitor(scoring={"lpd": get_scorer("log_predictive_density")})
    model = quick().set_callbacks(monitor).fit(*data)
    logs = monitor.get_logs().data
    assert len(logs) >= model.n_iter_
    last = get_scorer("log_predictive_density")(model, *data)
    assert_allclose(logs[-1]["lpd"], last)


def test_with_metadata_routing(data):
    """Weights reach the scorer that asks for them, and return_std the end of the pipeline."""
    X, y = data
    weight = np.arange(60.0)
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        scoring = {
            "weighted": get_scorer("neg_crps").set_score_request(sample_weight=True),
            "other": get_scorer("neg_crps").set_score_request(sample_weight="other_weight"),
            "plain": get_scorer("neg_crps").set_score_request(sample_weight=False),
        }
        scores = cross_validate(
            make_pipeline(scaler, quick().set_fit_request(sample_weight=False)),
            X,
            y,
            scoring=scoring,
            cv=FOLDS,
            params={"sample_weight": weight, "other_weight": weight[::-1]},
            return_estimator=True,
        )
        for fold, (_, test) in enumerate(FOLDS.split(X)):
            mean, std = scores["estimator"][fold].predict(X[test], return_std=True)
            for name, w in [("weighted", weight), ("other", weight[::-1]), ("plain", None)]:
                w = None if w is None else w[test]
                expected = -crps(y[test], mean, std, sample_weight=w)
                assert scores[f"test_{name}"][fold] == expected


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies(duplicate, data):
    scorer = make_scorer(interval_score, greater_is_better=False, level=0.5)
    scorer.set_score_request(sample_weight=True)
    twin, model = duplicate(scorer), quick().fit(*data)
    assert twin(model, *data) == scorer(model, *data)
    assert repr(twin) == repr(scorer)
    requests = twin.get_metadata_routing().score.requests
    assert requests == {"sample_weight": True}
    twin.set_score_request(sample_weight=False)
    assert scorer.get_metadata_routing().score.requests == {"sample_weight": True}


def test_names_of_one_scorer_do_not_share_requests():
    get_scorer("neg_crps").set_score_request(sample_weight=True)
    assert get_scorer("neg_crps").get_metadata_routing().score.requests == {"sample_weight": None}


def test_own_metric(data):
    def width(y_true, mean, std):
        return float(np.mean(std))

    scorer = make_scorer(width, greater_is_better=False)
    model = quick().fit(*data)
    assert scorer(model, *data) == -np.mean(model.predict(data[0], return_std=True)[1])
    assert repr(scorer) == "make_scorer(width, greater_is_better=False)"


def test_what_a_partial_function_looks_like():
    function = partial(coverage, level=0.5)
    assert repr(make_scorer(function)) == f"make_scorer({function!r})"


def test_unknown_name():
    with pytest.raises(ValueError, match="'crps' is not a scorer; the names are .*neg_crps"):
        get_scorer("crps")


def test_classes_are_refused(data):
    X, y = data
    model = VBGPClassifier(learn_hyperparameters=False).fit(X, y > 0.0)
    for estimator in (model, make_pipeline(StandardScaler(), model).fit(X, y > 0.0)):
        for judge in (get_scorer("neg_crps"), CalibrationDisplay.from_estimator):
            with pytest.raises(TypeError, match="predicts classes.*neg_log_loss"):
                judge(estimator, X, y > 0.0)


def test_a_transformed_target_is_refused(data):
    model = TransformedTargetRegressor(quick(), func=np.exp, inverse_func=np.log).fit(*data)
    for estimator in (model, make_pipeline(StandardScaler(), model).fit(*data)):
        with pytest.raises(TypeError, match="transform y before"):
            get_scorer("neg_crps")(estimator, *data)
