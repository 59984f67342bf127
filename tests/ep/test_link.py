"""What each row is without its own sites, and the exclusion that is learned from it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss

from skvbgp import EPDTCClassifier


@pytest.mark.parametrize("inducing", [slice(None, None, 2), slice(5)], ids=["many", "few"])
@pytest.mark.every_nth("inducing", 2)
def test_left_out_scores_are_those_of_fits_without_the_row(inducing, monkeypatch):
    """At fixed hyperparameters, where EP's cavities are nearly exact; few leave a residual."""
    seen = []

    def keep(scores, codes, weight):
        seen.append(scores)
        return 0.0

    monkeypatch.setattr("skvbgp.ep._learner.learn_exclusion", keep)
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    model = EPDTCClassifier(inducing_inputs=X[inducing], learn_hyperparameters=False)
    model.fit(X, y)
    left_out = seen[-1]
    for i in range(0, 50, 14):
        others = np.arange(50) != i
        scores = model.fit(X[others], y[others]).decision_function(X[i : i + 1])
        assert_allclose(left_out[i], scores[0], atol=0.03)


def test_classes_that_separate_are_more_certain():
    X, y = load_digits(n_class=4, return_X_y=True)
    X_new, y_new, X, y = X[200:], y[200:], X[:200], y[:200]
    model = EPDTCClassifier(n_inducing=30, max_iter=10, random_state=0).fit(X, y)
    own = ndtr(model.decision_function(X_new))
    normalised = own / own.sum(axis=1, keepdims=True)
    assert model.exclusion_ > 0.5
    assert log_loss(y_new, model.predict_proba(X_new)) < 0.8 * log_loss(y_new, normalised)


def test_two_classes_need_none():
    X, y = load_iris(return_X_y=True)
    model = EPDTCClassifier(n_inducing=10, max_iter=3, random_state=0).fit(X, y > 0)
    assert model.exclusion_ == 0.0
    assert_allclose(model.predict_proba(X)[:, 1], ndtr(model.decision_function(X)))
