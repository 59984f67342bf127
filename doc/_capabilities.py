"""The table of what each estimator can do, from the estimators themselves."""

from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

import skvbgp


def has(method):
    """Whether an estimator has a method or property."""
    return lambda estimator: hasattr(type(estimator), method)


def fit_takes(name):
    """Whether fit has a parameter."""
    return lambda estimator: has_fit_parameter(estimator, name)


def learns_from_collections(estimator):
    """Whether fit takes Dask collections."""
    try:
        estimator._check_collections()
    except TypeError:
        return False
    return True


SHARED = {
    "stream: ``partial_fit``": has("partial_fit"),
    "streams that forget: ``forgetting``": lambda estimator: "forgetting" in estimator.get_params(),
    "rows on Dask workers: ``fit``, ``partial_fit``": learns_from_collections,
    "weights of rows: ``sample_weight``": fit_takes("sample_weight"),
    "sparse X": lambda estimator: get_tags(estimator).input_tags.sparse,
    "NaN in X": lambda estimator: get_tags(estimator).input_tags.allow_nan,
    "categories in X: ``categorical_features``": lambda estimator: (
        "categorical_features" in estimator.get_params()
    ),
    "``fit`` from the one before: ``warm_start``": lambda estimator: (
        "warm_start" in estimator.get_params()
    ),
}
REGRESSION = {
    **SHARED,
    "known noise: ``y_var``": fit_takes("y_var"),
    "several outputs": lambda estimator: get_tags(estimator).target_tags.multi_output,
    "outputs that learn from each other: ``output_covariance``": lambda estimator: (
        "output_covariance" in estimator.get_params()
    ),
    "hyperparameters that outputs share: ``output_hyperparameters``": lambda estimator: (
        "output_hyperparameters" in estimator.get_params()
    ),
    "``return_std``, ``return_cov``, ``sample_y``": has("sample_y"),
    "``predict_quantiles``, ``predict_interval``": has("predict_quantiles"),
    "``log_predictive_density``": has("log_predictive_density"),
    "rows left out: ``loo_predict``": has("loo_predict"),
    "draws of functions: ``sample_function``": has("sample_function"),
    "``predict_gradient``": has("predict_gradient"),
    "``feature_importances_``": has("feature_importances_"),
}
CLASSIFICATION = {
    **SHARED,
    "uncertain X: ``X_var``": fit_takes("X_var"),
    "``predict_proba``": has("predict_proba"),
    "``decision_function``": has("decision_function"),
    "``transform``": has("transform"),
}


def public_estimators():
    """An instance of each estimator of the package by its name, those to start with first."""
    names = sorted(skvbgp.__all__, key=lambda name: not name.startswith("VBGP"))
    found = {name: getattr(skvbgp, name) for name in names}
    return {
        name: value()
        for name, value in found.items()
        if isinstance(value, type) and issubclass(value, BaseEstimator)
    }


def home_of(estimator):
    """The package whose page of the reference has an estimator."""
    return ".".join(type(estimator).__module__.split(".")[:2])


def make_tables():
    """Lines of reStructuredText: a table of the regressors, and one of the classifiers."""
    estimators = public_estimators()
    lines = []
    for kind, features in ((is_regressor, REGRESSION), (is_classifier, CLASSIFICATION)):
        some = {name: estimator for name, estimator in estimators.items() if kind(estimator)}
        rows = [["", *(f":class:`~{home_of(e)}.{name}`" for name, e in some.items())]]
        for feature, test in features.items():
            rows.append([feature, *("yes" if test(e) else "" for e in some.values())])
        lines += [".. list-table::", "   :header-rows: 1", "   :stub-columns: 1", ""]
        for row in rows:
            lines += [f"   {'  -' if i else '* -'} {cell}" for i, cell in enumerate(row)]
        lines.append("")
    return lines
