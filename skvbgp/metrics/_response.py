"""The predictive distribution of an estimator, a search or a pipeline."""

from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from skvbgp._core.linalg import Array


def find_best_estimator(estimator: Any) -> Any:
    """What a fitted search has selected; any other estimator as it is."""
    return getattr(estimator, "best_estimator_", estimator)


def find_last_step(estimator: Any) -> Any:
    """The final estimator of a pipeline, also of the best of a search, or the estimator itself."""
    model = find_best_estimator(estimator)
    return model[-1] if isinstance(model, Pipeline) else model


def predict_gaussian(estimator: Any, X: Any) -> tuple[Array, Array]:
    """Mean and standard deviation of every row; the `predict` of a search takes X alone."""
    if isinstance(find_last_step(estimator), TransformedTargetRegressor):
        raise TypeError(
            "TransformedTargetRegressor hands on no standard deviation, and what it makes of a "
            "normal distribution is none: transform y before, and score the regressor itself."
        )
    model = find_best_estimator(estimator)
    if hasattr(model, "classes_"):
        raise TypeError(
            f"{type(estimator).__name__} predicts classes, and this is about numbers: "
            "scikit-learn's scorers, such as 'neg_log_loss', and its CalibrationDisplay are for "
            "probabilities."
        )
    prediction = model.predict(X, return_std=True)
    if not isinstance(prediction, tuple) or len(prediction) != 2:
        raise TypeError(
            f"predict(X, return_std=True) of {type(estimator).__name__} must return the mean "
            f"and the standard deviation, but it returned {type(prediction).__name__}."
        )
    mean, std = prediction
    if np.ndim(mean) == 2 and np.shape(mean)[1] > 1:
        raise ValueError(
            f"{type(estimator).__name__} predicts {np.shape(mean)[1]} outputs, but this is about "
            "one: give the columns of its predictions to the function itself, one by one."
        )
    return np.asarray(mean), np.asarray(std)
