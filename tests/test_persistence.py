"""A fitted estimator survives pickle, joblib's memory maps and skops, and can go on learning."""

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import make_regression

from tests.test_common import CLASSES, but_siblings, quickly_fitted

pytestmark = [
    pytest.mark.usefixtures("quick_searches"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def through_pickle(estimator, folder):
    return pickle.loads(pickle.dumps(estimator))


def through_memory_map(estimator, folder):
    joblib.dump(estimator, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", mmap_mode="r")


def through_skops(estimator, folder):
    io = pytest.importorskip("skops.io")
    data = io.dumps(estimator)
    untrusted = io.get_untrusted_types(data=data)
    assert [name for name in untrusted if not name.startswith("skvbgp.")] == []
    return io.loads(data, trusted=untrusted)


@pytest.mark.parametrize(
    ("trip", "predicted_before"),
    [
        (through_pickle, False),
        (through_pickle, True),
        (through_memory_map, True),
        (through_skops, True),
    ],
)
@but_siblings("cls", CLASSES)
@pytest.mark.in_turn("trip")
@pytest.mark.every_nth("trip", 3)
def test_round_trip(cls, trip, predicted_before, tmp_path):
    estimator = quickly_fitted(cls)
    X, y = make_regression(10, estimator.n_features_in_, random_state=0)
    labels = estimator.classes_[(y > 0).astype(int)] if is_classifier(estimator) else y
    tolerance = 1e-10 * (1.0 if is_classifier(estimator) else np.std(y))  # of values near zero
    if predicted_before:  # what a prediction leaves in the estimator
        predictions(estimator, X)
    other = trip(estimator, tmp_path)
    assert str(other) == str(estimator)
    for _ in range(2):
        for one, two in zip(predictions(other, X), predictions(estimator, X), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-10, atol=tolerance)
        other.partial_fit(X, labels)
        estimator.partial_fit(X, labels)


def predictions(estimator, X):
    if is_classifier(estimator):
        return [estimator.predict_proba(X)]
    return estimator.predict(X, return_std=True)
