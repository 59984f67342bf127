"""What the estimators share; the only package that imports private parts of scikit-learn."""

from skvbgp.base._apart import Hidden
from skvbgp.base._categories import is_sparse, make_dense
from skvbgp.base._change import NoticesFunctions, find_change, suspect
from skvbgp.base._classes import COLUMNS, PredictsClasses, class_codes, class_probabilities
from skvbgp.base._docs import documented_like
from skvbgp.base._estimator import (
    CATEGORIES,
    JOINT_OUTPUTS,
    LEARNING,
    Interval,
    StrOptions,
    VariationalClassifier,
    VariationalEstimator,
    VariationalRegressor,
    fit_method,
    keep,
)
from skvbgp.base._exact_process import (
    SLOPE,
    SLOPE_LIMITS,
    SLOPE_SPREAD,
    ExactRows,
    find_maximum,
)
from skvbgp.base._fading import (
    FORGETTING,
    FORGETTING_OR_WINDOW,
    FadingRegressor,
    ForgetfulClassifier,
    ForgetfulRegressor,
    ForgetsLabels,
)
from skvbgp.base._function import (
    DescribesFunction,
    Draws,
    Relevance,
    ScaledDraws,
    share_out,
)
from skvbgp.base._gap_noise import FillsGaps
from skvbgp.base._gaps import Gaps, find_gaps
from skvbgp.base._joint_learner import (
    JoinsOutputs,
    JointLearner,
    JointStart,
    JointState,
    StackingLearner,
)
from skvbgp.base._joint_outputs import JointPosterior, Units, lengthen
from skvbgp.base._labels import Labels, read_classes
from skvbgp.base._learner import Distribution, Learner, Posterior, RegressionLearner
from skvbgp.base._left_out import LeavesOut, RowSaysMoreError, find_known, invert_rest
from skvbgp.base._neighbours import Neighbourhoods, RowSearch, SmallSearch
from skvbgp.base._outputs import (
    Observations,
    OutputsDistribution,
    OutputsLearner,
    OutputsPosterior,
    OutputsState,
)
from skvbgp.base._parted import PartedModel, find_joining, find_output
from skvbgp.base._spread_neighbours import find_near
from skvbgp.base._start import (
    START_ROWS,
    at_one_place,
    brings_variation,
    choose_inducing_inputs,
    choose_rows,
    find_constant,
    is_outgrown,
    says_too_little,
)
from skvbgp.base._validation import (
    LARGEST_WEIGHT,
    as_count,
    as_vector,
    as_weights,
    choose_columns,
    reading,
    validate_numbers,
)
from skvbgp.base._weights import (
    FORGOTTEN,
    Targets,
    Weighted,
    as_noise,
    count_remembered,
    count_rows,
    count_targets,
    join_rows,
    join_variances,
    join_weights,
    keep_newest,
    merge_equal,
    merge_targets,
    pick,
    share_by_age,
    weigh_classes,
)
