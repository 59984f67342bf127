"""What models of near rows share."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp import VBGPClassifier, VBGPRegressor
from skvbgp._core import parallel
from skvbgp.kernels import Matern

FIXED = {"kernel": Matern(1.0), "n_neighbors": 10, "learn_hyperparameters": False}


@pytest.fixture
def asked(monkeypatch):
    """The numbers of workers that joblib is asked for."""
    numbers = []

    class Parallel(parallel.Parallel):
        def __init__(self, n_jobs, **options):
            numbers.append(n_jobs)
            super().__init__(n_jobs=n_jobs, **options)

    monkeypatch.setattr(parallel, "Parallel", Parallel)
    return numbers


@pytest.mark.parametrize("case", ["one output", "learned outputs", "classes"])
def test_workers_may_be_others_than_in_the_fit(rng, asked, case):
    X = rng.standard_normal((40, 2))
    y, outputs = np.sin(3.0 * X[:, 0]), {"output_covariance": "learned"}
    model, targets = {
        "one output": (VBGPRegressor(**FIXED), y),
        "learned outputs": (VBGPRegressor(**FIXED, **outputs), np.column_stack([y, 1.0 - y])),
        "classes": (VBGPClassifier(**FIXED), y > 0.0),
    }[case]
    model.fit(X, targets)
    predict = getattr(model, "predict_proba", model.predict)
    expected = predict(X)
    assert not asked
    model.set_params(n_jobs=1)
    assert_array_equal(predict(X), expected)
    assert set(asked) == {1}
    model.set_params(n_jobs=None)
    asked.clear()
    assert_array_equal(predict(X), expected)
    assert not asked
