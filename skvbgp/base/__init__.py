"""What the estimators share; the only package that imports private parts of scikit-learn."""

from skvbgp.base._classifier import (
    COLUMNS,
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
    as_row_values,
    as_vector,
    as_weights,
    by_tile,
    fit_method,
    in_tiles,
)
from skvbgp.base._function import (
    DescribesFunction,
    Draws,
    KnownFunction,
    OutputsDraws,
    Relevance,
)
from skvbgp.base._known_noise import as_noise
from skvbgp.base._lazy import lazily
from skvbgp.base._learner import (
    Distribution,
    Learner,
    Posterior,
    RegressionLearner,
    predict_distribution,
)
from skvbgp.base._left_out import LeavesOut, find_known, invert_rest
from skvbgp.base._neighbours import Neighbourhoods, Places
from skvbgp.base._outputs import (
    Observations,
    OutputsDistribution,
    OutputsLearner,
    OutputsState,
    stack_pairs,
)
from skvbgp.base._reading import find_missing, reading
from skvbgp.base._regressor import VariationalRegressor, draw_normal
from skvbgp.base._row_keeper import RowKeeper
from skvbgp.base._spread_neighbours import find_near, find_near_scaled
from skvbgp.base._start import (
    START_ROWS,
    at_one_place,
    choose_inducing_inputs,
    choose_rows,
    is_outgrown,
    says_too_little,
    subsample,
)
from skvbgp.base._weighted import WeightedClassifier, WeightedRegressor
from skvbgp.base._weights import (
    Targets,
    count_rows,
    count_targets,
    join_rows,
    join_variances,
    join_weights,
    merge_equal,
    merge_targets,
    pick,
    weigh_classes,
)

__all__ = [
    "COLUMNS",
    "START_ROWS",
    "DescribesFunction",
    "Distribution",
    "DocumentedEstimator",
    "Draws",
    "Interval",
    "KnownFunction",
    "Labels",
    "Learner",
    "LeavesOut",
    "Neighbourhoods",
    "Observations",
    "OutputsDistribution",
    "OutputsDraws",
    "OutputsLearner",
    "OutputsState",
    "Places",
    "Posterior",
    "RegressionLearner",
    "Relevance",
    "RowKeeper",
    "StrOptions",
    "Targets",
    "VariationalClassifier",
    "VariationalEstimator",
    "VariationalRegressor",
    "WeightedClassifier",
    "WeightedRegressor",
    "as_noise",
    "as_row_values",
    "as_vector",
    "as_weights",
    "at_one_place",
    "by_tile",
    "choose_inducing_inputs",
    "choose_rows",
    "class_codes",
    "class_probabilities",
    "count_rows",
    "count_targets",
    "declared_classes",
    "draw_normal",
    "find_known",
    "find_missing",
    "find_near",
    "find_near_scaled",
    "fit_method",
    "in_tiles",
    "invert_rest",
    "is_outgrown",
    "join_rows",
    "join_variances",
    "join_weights",
    "lazily",
    "merge_equal",
    "merge_targets",
    "pick",
    "predict_distribution",
    "reading",
    "says_too_little",
    "stack_pairs",
    "subsample",
    "weigh_classes",
]
