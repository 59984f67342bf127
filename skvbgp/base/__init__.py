"""What the estimators share; the only package that imports private parts of scikit-learn."""

from skvbgp.base._classifier import (
    BinaryLearner,
    Labels,
    VariationalClassifier,
    class_codes,
    class_probabilities,
    declared_classes,
)
from skvbgp.base._estimator import (
    DocumentedEstimator,
    Interval,
    StrOptions,
    VariationalEstimator,
    as_vector,
    fit_method,
    in_tiles,
)
from skvbgp.base._inducing import choose_inducing_inputs, subsample
from skvbgp.base._regressor import VariationalRegressor

__all__ = [
    "BinaryLearner",
    "DocumentedEstimator",
    "Interval",
    "Labels",
    "StrOptions",
    "VariationalClassifier",
    "VariationalEstimator",
    "VariationalRegressor",
    "as_vector",
    "choose_inducing_inputs",
    "class_codes",
    "class_probabilities",
    "declared_classes",
    "fit_method",
    "in_tiles",
    "subsample",
]
