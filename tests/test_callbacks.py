"""scikit-learn's callbacks on every regressor: passes, early stop, failures, monitors."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.callback import FitCallback, ProgressBar, ScoringMonitor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import EPDTCClassifier, VBDTCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp.metrics import get_scorer
from tests.sgpr.cases import REGRESSORS, SOLVERS, every, make_data, quick_for, small

pytestmark = pytest.mark.usefixtures("quick_block_start")

each_solver = pytest.mark.parametrize("solver", SOLVERS)


class Recorder:
    """Notes every call, may stop after a pass and may fail in a hook."""

    def __init__(self, X_test=None, stop_after=None, fail_in=None):
        self.X_test, self.stop_after, self.fail_in = X_test, stop_after, fail_in
        self.calls, self.data, self.models, self.predictions = [], [], [], []

    def _note(self, hook, context):
        self.calls.append((hook, context.task_name, context.task_id))
        if (hook, context.task_name, context.task_id) == self.fail_in:
            raise ZeroDivisionError("from the callback")

    def setup(self, estimator, context):
        self._note("setup", context)

    def teardown(self, estimator, context):
        self._note("teardown", context)

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.data.append((estimator, X, y))
        self._note("begin", context)

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.data.append((estimator, X, y))
        self._note("end", context)
        if context.parent is None or fitted_estimator is None:
            return False
        self.models.append(fitted_estimator)
        self.predictions.append(fitted_estimator.predict(self.X_test, return_std=True))
        return len(self.models) == self.stop_after


def passes(n):
    """The calls of a fit of n passes."""
    inner = [(hook, "pass", i) for i in range(n) for hook in ("begin", "end")]
    return [
        ("setup", "fit", 0),
        ("begin", "fit", 0),
        *inner,
        ("end", "fit", 0),
        ("teardown", "fit", 0),
    ]


def test_recorder_follows_the_protocol():
    assert isinstance(Recorder(), FitCallback)


# -- passes ------------------------------------------------------------------------------------


@every
@each_solver
@pytest.mark.every_nth("solver", 3)
def test_one_subtask_for_each_pass(cls, solver):
    X, y = make_data()
    recorder = Recorder(X)
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(recorder).fit(X, y)
    assert recorder.calls == passes(3)
    assert model.n_iter_ == len(recorder.models) == 3
    for estimator, X_seen, y_seen in recorder.data:
        assert estimator is model
        assert X_seen is X
        assert y_seen is y


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_callbacks_change_no_result(cls, solver):
    X, y = make_data()
    model = small(cls, solver, max_iter=3).set_callbacks(Recorder(X)).fit(X, y)
    expected = small(cls, solver, max_iter=3).fit(X, y)
    assert model.lower_bounds_ == expected.lower_bounds_
    for mine, theirs in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_array_equal(mine, theirs)


@pytest.mark.thorough
@every
def test_convergence_before_the_last_pass_leaves_no_task_open(cls):
    X, y = make_data()
    recorder = Recorder(X)
    model = small(cls, tol=1e-2, max_iter=100).set_callbacks(recorder).fit(X, y)
    assert model.n_iter_ == len(recorder.models) < 100
    # one more has begun, as in LogisticRegression: the solver knows only afterwards
    assert recorder.calls == passes(model.n_iter_ + 1)


@every
def test_fixed_hyperparameters_are_one_pass(cls):
    X, y = make_data()
    recorder = Recorder(X)
    small(cls, learn_hyperparameters=False).set_callbacks(recorder).fit(X, y)
    assert recorder.calls == passes(1)


@every
@pytest.mark.parametrize("learn_hyperparameters", [True, False])
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_partial_fit_is_one_pass(cls, learn_hyperparameters):
    X, y = make_data()
    model = small(cls, learn_hyperparameters=learn_hyperparameters).fit(X[:35], y[:35])
    recorder = Recorder(X)
    model.set_callbacks(recorder).partial_fit(X[35:], y[35:])
    assert recorder.calls == passes(1)
    assert_array_equal(recorder.predictions[0], model.predict(X, return_std=True))


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_estimators_of_half_way(cls, solver):
    """Each is as if the fit had stopped there, and later passes do not reach into it."""
    X, y = make_data()
    recorder = Recorder(X)
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(recorder).fit(X, y)
    for other, prediction in zip(recorder.models, recorder.predictions, strict=True):
        assert other is not model
        assert_array_equal(other.predict(X, return_std=True), prediction)
        assert np.isfinite(other.lower_bound_)
        assert other.n_samples_seen_ == len(X)
        assert other.inducing_inputs_.shape == model.inducing_inputs_.shape
        assert other.n_features_in_ == 2
    bounds = [other.lower_bound_ for other in recorder.models]
    assert bounds[0] < bounds[-1]
    assert bounds[-1] == model.lower_bound_
    assert_array_equal(recorder.predictions[-1], model.predict(X, return_std=True))
    assert np.any(recorder.predictions[0][0] != recorder.predictions[-1][0])
    expected = model.predict(X)
    recorder.models[0].set_callbacks().partial_fit(X[:3], y[:3])
    assert_array_equal(model.predict(X), expected)


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_estimators_of_half_way_know_their_passes(cls, solver):
    X, y = make_data()
    recorder = Recorder(X)
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(recorder).fit(X, y)
    for i, other in enumerate(recorder.models):
        assert other.n_iter_ == i + 1
        assert other.lower_bounds_ == model.lower_bounds_[: i + 1]


# -- early stop --------------------------------------------------------------------------------


@every
@each_solver
@pytest.mark.parametrize("stop_after", [1, 2])
@pytest.mark.in_turn("stop_after")
@pytest.mark.every_nth("stop_after", 2)
def test_early_stop(cls, solver, stop_after):
    X, y = make_data()
    recorder = Recorder(X, stop_after=stop_after)
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(recorder).fit(X, y)
    assert recorder.calls == passes(stop_after)
    assert model.n_iter_ == len(model.lower_bounds_) == stop_after
    assert_array_equal(recorder.predictions[-1], model.predict(X, return_std=True))
    unstopped = small(cls, solver, tol=0.0, max_iter=3).fit(X, y)
    assert_allclose(model.lower_bounds_, unstopped.lower_bounds_[:stop_after], rtol=1e-12)


# -- failures ----------------------------------------------------------------------------------

FAILURES = [
    ("setup", "fit", 0),
    ("begin", "fit", 0),
    ("begin", "pass", 0),
    ("end", "pass", 0),
    ("begin", "pass", 1),
    ("end", "pass", 2),
    ("end", "fit", 0),
]


@pytest.mark.parametrize(
    ("cls", "solver"),
    [(cls, "collapsed") for cls in REGRESSORS] + [(VBDTCRegressor, "stochastic")],
)
@pytest.mark.parametrize("fail_in", FAILURES, ids=lambda f: "-".join(map(str, f)))
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("fail_in", 3)
def test_a_callback_that_fails(cls, solver, fail_in):
    X, y = make_data()
    recorder = Recorder(X, fail_in=fail_in)
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(recorder)
    before = dict(vars(model))
    with pytest.raises(ZeroDivisionError, match="from the callback"):
        model.fit(X, y)
    assert recorder.calls[-1] == ("teardown", "fit", 0)
    assert vars(model) == before
    with pytest.raises(NotFittedError):
        model.predict(X)
    recorder.fail_in, recorder.calls = None, []
    model.fit(X, y)  # nothing is left over from the failure
    assert recorder.calls == passes(3)


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.every_nth("method", 2)
def test_a_callback_that_fails_in_a_fitted_estimator(cls, method):
    X, y = make_data()
    model = small(cls, max_iter=1).fit(X[:20], y[:20])
    model.set_callbacks(Recorder(X, fail_in=("end", "pass", 0)))
    before, expected = dict(vars(model)), model.predict(X, return_std=True)
    with pytest.raises(ZeroDivisionError):
        getattr(model, method)(X[20:], y[20:])
    assert vars(model).keys() == before.keys()
    for name, value in before.items():
        assert getattr(model, name) is value, name
    assert_array_equal(model.predict(X, return_std=True), expected)


@every
def test_callbacks_are_torn_down_if_the_data_are_bad(cls):
    X, y = make_data()
    recorder = Recorder(X)
    model = small(cls, max_iter=3).set_callbacks(recorder)
    with pytest.raises(ValueError):
        model.fit(X, np.where(y > y[3], y, np.nan))
    hooks = [call[0] for call in recorder.calls]
    assert hooks.count("setup") == hooks.count("teardown")
    assert not hasattr(model, "n_features_in_")


# -- the callbacks of scikit-learn -------------------------------------------------------------


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_scoring_monitor(cls, solver):
    X, y = make_data()
    monitor = ScoringMonitor(scoring="r2")
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(monitor).fit(X, y)
    rows = monitor.get_logs().data
    assert [row["task_name"] for row in rows] == ["fit", "pass", "pass", "pass"]
    score = r2_score(y, model.predict(X))
    assert_allclose([rows[0]["r2"], rows[-1]["r2"]], [score, score], rtol=1e-10)
    assert rows[1]["r2"] != rows[-1]["r2"]


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.every_nth("method", 2)
def test_callbacks_score_with_the_weights_that_were_given(classes, method):
    X, y = make_data()
    weight, known = np.where(y > np.median(y), 5.0, 0.1), {}
    if classes:
        y = (y > np.median(y)) ^ (np.arange(len(y)) % 7 == 0)  # some of them are wrong
        model, known = EPDTCClassifier(5, max_iter=2), {"classes": [False, True]}
    else:
        model = small(VBDTCRegressor, max_iter=2)
    monitor = ScoringMonitor(scoring="accuracy" if classes else "r2")
    getattr(model.set_callbacks(monitor), method)(
        X, y, sample_weight=weight, **known if method == "partial_fit" else {}
    )
    row = monitor.get_logs().data[-1]
    score = row["accuracy" if classes else "r2"]
    assert_allclose(score, model.score(X, y, sample_weight=weight))
    assert abs(score - model.score(X, y)) > 1e-3


def test_scorers_of_distributions_take_these_weights():
    X, y = make_data()
    weight = np.where(y > np.median(y), 5.0, 0.1)
    scorer = get_scorer("log_predictive_density")
    monitor = ScoringMonitor(scoring={"lpd": scorer, "r2": "r2"})
    model = small(VBDTCRegressor, max_iter=2).set_callbacks(monitor)
    model.fit(X, y, sample_weight=weight)
    row = monitor.get_logs().data[-1]
    assert_allclose(row["lpd"], scorer(model, X, y, sample_weight=weight))
    assert_allclose(row["r2"], model.score(X, y, weight))


def test_a_weight_of_all_rows_is_one_of_each_to_callbacks():
    X, y = make_data()
    monitor = ScoringMonitor(scoring="r2")
    model = small(VBDTCRegressor, max_iter=2).set_callbacks(monitor).fit(X, y, sample_weight=2.0)
    assert_allclose(monitor.get_logs().data[-1]["r2"], model.score(X, y))


@every
@each_solver
@pytest.mark.every_nth("solver", 2)
def test_progress_bar(cls, solver, capsys):
    pytest.importorskip("rich")
    X, y = make_data()
    model = small(cls, solver, tol=0.0, max_iter=3).set_callbacks(ProgressBar()).fit(X, y)
    assert model.n_iter_ == 3
    output = capsys.readouterr().out
    assert cls.__name__ in output
    assert "100%" in output


@quick_for(VBDTCRegressor, VBPITCRegressor)
def test_progress_bar_of_a_converged_fit_and_of_a_stream(cls, capsys):
    pytest.importorskip("rich")
    X, y = make_data()
    model = small(cls, tol=1e-2, max_iter=100).set_callbacks(ProgressBar())
    assert model.fit(X, y).n_iter_ < 100
    assert "100%" in capsys.readouterr().out
    model.partial_fit(X[:5], y[:5])
    assert "100%" in capsys.readouterr().out


@pytest.mark.thorough
@every
@each_solver
def test_callbacks_in_a_pipeline_and_a_grid_search(cls, solver, capsys):
    pytest.importorskip("rich")
    X, y = make_data()
    monitor = ScoringMonitor(scoring="r2")
    inner = small(cls, solver, tol=0.0, max_iter=2).set_callbacks(monitor)
    name = cls.__name__.lower()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), inner), {f"{name}__prior_variance": [1.0, 4.0]}, cv=2
    )
    search.set_callbacks(ProgressBar()).fit(X, y)
    # two candidates, two folds and the refit, each with two passes and their parent
    assert len(monitor.get_logs().data) == (2 * 2 + 1) * 3
    assert "GridSearchCV" in capsys.readouterr().out
    alone = clone(search.best_estimator_).set_callbacks().fit(X, y)
    assert_array_equal(search.predict(X), alone.predict(X))


@quick_for(VBDTCRegressor, VBPICRegressor)
def test_data_frames_do_not_make_the_monitors_warn(cls):
    frames = pytest.importorskip("pandas")
    X, y = make_data()
    frame, target = frames.DataFrame(X, columns=["east", "north"]), frames.Series(y)
    monitor, recorder = ScoringMonitor(scoring="r2"), Recorder(frame)
    model = small(cls, tol=0.0, max_iter=3).set_callbacks(monitor, recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(frame, target).partial_fit(frame[:3], target[:3])
    assert len(monitor.get_logs(select="all")) == 2
    assert all(seen in (3, len(X)) for seen in (len(data[1]) for data in recorder.data))
    assert all(type(data[1]) is frames.DataFrame for data in recorder.data)
