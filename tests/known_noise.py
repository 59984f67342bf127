"""What tests of the known noise of rows have in common."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def check_predictions(model, X):
    """Known noise of new rows adds to the variances, and to nothing else."""
    y_var = np.arange(float(len(X)))
    mean, std = model.predict(X, return_std=True)
    told_mean, told = model.predict(X, return_std=True, y_var=y_var)
    assert_array_equal(told_mean, mean)
    assert_allclose(told**2, std**2 + y_var)
    plain, wider = (model.predict(X, return_cov=True, y_var=v)[1] for v in (None, y_var))
    assert_allclose(wider - plain, np.diag(y_var), atol=1e-12 * (1.0 + plain.max()))
    assert_array_equal(model.predict(X, y_var=2.0), mean)


def check_routed(model, X, y):
    """Variances reach the last step of a pipeline, in training and in prediction."""
    n = len(y)
    weight, y_var = np.arange(float(n)), np.linspace(0.0, 0.3, n)
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True, y_var=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        params = {"sample_weight": weight, "y_var": y_var}
        scores = cross_validate(pipeline, X, y, cv=2, params=params, return_estimator=True)
        half = np.arange(n // 2, n)
        Z = StandardScaler().fit(X[half]).transform(X[half])
        expected = clone(model).fit(Z, y[half], sample_weight=weight[half], y_var=y_var[half])
        assert_array_equal(scores["estimator"][0][-1].predict(Z), expected.predict(Z))
        pipeline.fit(X, y, **params)
        plain, wider = (pipeline.predict(X, return_std=True, y_var=v)[1] for v in (0.0, y_var))
    assert_allclose(wider**2, plain**2 + y_var)
