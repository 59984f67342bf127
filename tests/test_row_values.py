"""Weights of rows and known variances of their noise, by the same code in all estimators."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.sgpr.cases import make_data
from tests.test_common import FIRST, but_siblings, quickest
from tests.weights import NEITHER, check_predictions, check_refused

pytestmark = pytest.mark.usefixtures("quick_searches")

every = but_siblings("estimator", FIRST)
regressors = pytest.mark.parametrize("estimator", list(filter(is_regressor, FIRST)), ids=repr)


def prepare(estimator, n):
    """A quick instance, and rows that it learns from."""
    X, y = make_data(n)
    return quickest(estimator), X, y > np.median(y) if is_classifier(estimator) else y


@every
@pytest.mark.every_nth("estimator", 3)
def test_bad_weights_are_refused_and_change_nothing(estimator):
    check_refused(*prepare(estimator, 30))


@regressors
@pytest.mark.every_nth("estimator", 3)
def test_bad_variances_are_refused_and_change_nothing(estimator):
    model, X, y = prepare(estimator, 30)
    check_refused(model, X, y, "y_var")
    for bad in NEITHER:
        with pytest.raises(ValueError, match="y_var"):
            model.predict(X, y_var=bad)
    with pytest.raises(ValueError, match="include_noise"):
        model.predict(X, include_noise=False, y_var=1.0)


@regressors
@pytest.mark.every_nth("estimator", 6)
def test_none_is_known_where_all_variances_are_zero(estimator):
    model, X, y = prepare(estimator, 60)
    plain, told = clone(model), model
    for rows in (slice(40), slice(40, 60)):
        plain.partial_fit(X[rows], y[rows])
        told.partial_fit(X[rows], y[rows], y_var=np.zeros(len(y[rows])))
    for one, other in zip(plain.predict(X, True), told.predict(X, True), strict=True):
        assert_array_equal(one, other)


@regressors
@pytest.mark.every_nth("estimator", 3)
def test_known_noise_of_predictions_is_added(estimator):
    model, X, y = prepare(estimator, 30)
    check_predictions(model.fit(X, y), X)


@every
@pytest.mark.every_nth("estimator", 6)
def test_values_of_rows_are_routed(estimator):
    """A search hands them to the last step of a pipeline, and weights to its score."""
    model, X, y = prepare(estimator, 40)
    given = {"sample_weight": np.arange(40.0)}
    if is_regressor(model):
        given["y_var"] = np.linspace(0.0, 0.3, 40)
    folds = KFold(2)
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(**dict.fromkeys(given, True)).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        search = GridSearchCV(pipeline, {}, cv=folds).fit(X, y, **given)
        for k, (known, held) in enumerate(folds.split(X)):
            parts = {name: values[known] for name, values in given.items()}
            best = clone(pipeline).fit(X[known], y[known], **parts)
            score = best.score(X[held], y[held], sample_weight=given["sample_weight"][held])
            assert_allclose(search.cv_results_[f"split{k}_test_score"], score, rtol=1e-10)
        found, Z = search.best_estimator_, StandardScaler().fit_transform(X)
        expected = clone(model).fit(Z, y, **given)
        if not is_regressor(model):
            assert_array_equal(found[-1].predict_proba(Z), expected.predict_proba(Z))
            return
        assert_array_equal(found[-1].predict(Z), expected.predict(Z))
        y_var = given["y_var"]
        plain, wider = (found.predict(X, return_std=True, y_var=v)[1] for v in (0.0, y_var))
    assert_allclose(wider**2, plain**2 + y_var)
