"""Fits that are interrupted go on from their file, and end bit for bit as if they had not been."""

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.callback import FitCallback, ScoringMonitor
from sklearn.linear_model import LogisticRegression
from sklearn.utils import shuffle

from skvbgp import (
    DecoupledGPClassifier,
    DecoupledGPRegressor,
    EPDTCClassifier,
    HybridGPLVM,
    SVBSSGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBGPClassifier,
    VBGPRegressor,
    VBKSRegressor,
    VBPICRegressor,
    VBPITCRegressor,
    kernel_grammar,
)
from skvbgp.callbacks import Checkpoint, _LayoutPickler
from skvbgp.decoupled import _start
from skvbgp.kernels import RBF, Matern
from tests.observer import Observer

pytestmark = [
    pytest.mark.usefixtures("quick_searches"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

N = 60


class InterruptionError(Exception):
    """As if the process had been killed."""


class Interrupt(Observer):
    """Counts passes, may fail after one of them or at the end of the fit, and may stop it."""

    def __init__(self, after=None, at_end=False, stop_after=None):
        self.after, self.at_end, self.stop_after = after, at_end, stop_after
        self.n_passes = 0

    def setup(self, estimator, context):
        self.n_passes = 0

    def on_fit_task_end(self, estimator, context):
        if context.parent is None:
            if self.at_end:
                raise InterruptionError
            return False
        assert context.task_id == self.n_passes
        self.n_passes += 1
        if self.n_passes == self.after:
            raise InterruptionError
        return self.n_passes == self.stop_after


def make_data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (N, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)


def interrupt(model, path, after, X, y, **options):
    """Fit a clone until a pass, with a checkpoint."""
    broken = clone(model).set_callbacks(Checkpoint(path, **options), Interrupt(after))
    with pytest.raises(InterruptionError):
        broken.fit(X, y)
    return broken


def assert_same(one, other, X):
    """Every fitted attribute and prediction is, bit for bit."""
    method = "predict_proba" if hasattr(one, "predict_proba") else "predict"
    assert_array_equal(getattr(one, method)(X), getattr(other, method)(X))
    for name in ("lower_bounds_", "lower_bound_", "noise_variance_", "inducing_inputs_"):
        assert hasattr(one, name) == hasattr(other, name)
        if hasattr(one, name):
            assert_array_equal(getattr(one, name), getattr(other, name))
    assert getattr(one, "n_iter_", 1) == getattr(other, "n_iter_", 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.ckpt"


SPARSE = {"n_inducing": 8, "random_state": 0}
STOCHASTIC = {**SPARSE, "solver": "stochastic", "batch_size": 16, "max_iter": 5}
DECOUPLED = dict(n_mean_basis=30, n_cov_basis=15, batch_size=30, max_iter=5, random_state=0)
KERNELS = kernel_grammar(1)[:3]
CASES = {
    "collapsed": VBDTCRegressor(**SPARSE, solver="collapsed", max_iter=6),
    "collapsed, FITC": VBFITCRegressor(**SPARSE, solver="collapsed", max_iter=6),
    "exact": VBDTCRegressor(N, solver="exact", max_iter=4, random_state=0),
    "stochastic": VBDTCRegressor(**STOCHASTIC),
    "stochastic, FITC": VBFITCRegressor(**STOCHASTIC),
    "PITC": VBPITCRegressor(**SPARSE, solver="collapsed", n_blocks=4, max_iter=4),
    "PIC, blocks": VBPICRegressor(**STOCHASTIC, n_blocks=20, noise_kernel=None),
    "spectrum": SVBSSGPRegressor(8, max_iter=4, batch_size=32, random_state=0),
    "spectrum, bound": SVBSSGPRegressor(8, objective="bound", max_iter=4, random_state=0),
    "decoupled": DecoupledGPRegressor(**DECOUPLED),
    "decoupled, Poisson": DecoupledGPRegressor(**DECOUPLED, likelihood="poisson"),
    "decoupled, classes": DecoupledGPClassifier(**DECOUPLED),
    "EP": EPDTCClassifier(**SPARSE, max_iter=23),
    "EP, restart": EPDTCClassifier(**SPARSE, max_iter=4, n_restarts=1),
    "hybrid": HybridGPLVM(n_components=1, **SPARSE, max_iter=23),
    "hybrid, free": HybridGPLVM(n_components=1, **SPARSE, max_iter=6, latents="free"),
    "kernels": VBKSRegressor(KERNELS, n_restarts=1, max_iter=3, random_state=0),
    "kernels, stochastic": VBKSRegressor(
        KERNELS, n_restarts=1, n_inducing=8, batch_size=40, max_iter=2, random_state=0
    ),
    "neighbours": VBGPRegressor(max_iter=2, random_state=0),
    "neighbours, many": VBGPRegressor(
        [RBF(), Matern()], n_neighbors=20, max_iter=2, random_state=0
    ),
    "neighbours, classes": VBGPClassifier(max_iter=2, random_state=0),
}


def test_checkpoint_follows_the_protocol():
    assert isinstance(Checkpoint("a"), FitCallback)
    assert repr(pickle.loads(pickle.dumps(Checkpoint("a", 3)))) == "Checkpoint('a', every=3)"


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["once", pytest.param("each time", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_a_fit_goes_on_and_ends_as_it_would_have(case, ends, path):
    """A fit that is interrupted three times, or one for each time."""
    model, (X, y) = CASES[case], make_data()
    if hasattr(model, "predict_proba"):
        y = (y > 0.0).astype(int)
    if "Poisson" in case:
        y = np.round(np.exp(y))
    count = Interrupt()
    expected = clone(model).set_callbacks(Checkpoint(path), count).fit(X, y)
    assert_same(expected, clone(model).fit(X, y), X[:5])
    n = count.n_passes
    times = sorted({2, n // 2 + 1, n})
    for after in times:
        broken = interrupt(model, path, after, X, y)
        assert not hasattr(broken, "_state")
        assert path.exists()
        if ends == "each time" or after == times[-1]:
            resumed = clone(model).set_callbacks(Checkpoint(path), count).fit(X, y)
            assert_same(resumed, expected, X[:5])
            assert count.n_passes == n
            assert not os.listdir(path.parent)


@pytest.mark.parametrize(
    ("model", "after"),
    [
        (VBGPRegressor([RBF(), Matern()], max_iter=2, random_state=0), 2),
        (
            VBGPRegressor(
                [RBF(), Matern()], output_covariance="learned", max_iter=2, random_state=0
            ),
            2,
        ),
        (
            VBGPRegressor(
                [RBF(), Matern()], output_hyperparameters="shared", max_iter=2, random_state=0
            ),
            2,
        ),
        (clone(CASES["exact"]).set_params(output_covariance="learned", n_inducing=120), 2),
        (clone(CASES["stochastic"]).set_params(output_covariance="learned"), 2),
        (CASES["exact"], 6),  # in the second output
        (CASES["stochastic"], 7),
        pytest.param(CASES["spectrum"], 10, marks=pytest.mark.thorough),
        pytest.param(CASES["decoupled"], 7, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.every_nth("model", 4)
def test_several_outputs(model, after, path):
    X, y = make_data()
    X, Y = X[:60], np.column_stack([y, np.cos(X[:, 1])])[:60]
    expected = clone(model).fit(X, Y)
    interrupt(model, path, after, X, Y)
    assert path.exists()
    resumed = clone(model).set_callbacks(Checkpoint(path)).fit(X, Y)
    assert_array_equal(resumed.predict(X), expected.predict(X))


def test_work_that_is_known_is_not_done_again(path, monkeypatch):
    from skvbgp.sgpr import _training

    X, y = make_data()
    steps = []
    evaluate = _training.evaluate
    monkeypatch.setattr(_training, "evaluate", lambda *args: steps.append(1) or evaluate(*args))
    model = VBDTCRegressor(**STOCHASTIC, tol=0.0)
    interrupt(model, path, 4, X, y)
    n_before = len(steps)
    model.set_callbacks(Checkpoint(path)).fit(X, y)
    assert len(steps) - n_before == n_before // 4 * 2


def test_every_few_passes(path):
    X, y = make_data()
    model = VBDTCRegressor(**STOCHASTIC, tol=0.0)
    expected = clone(model).fit(X, y)
    interrupt(model, path, 3, X, y, every=3)  # the third one had not been written
    assert not path.exists()
    interrupt(model, path, 5, X, y, every=3)
    assert_same(model.set_callbacks(Checkpoint(path, every=2)).fit(X, y), expected, X)


@pytest.mark.thorough
def test_a_fit_may_be_interrupted_again_and_again(path):
    X, y = make_data()
    for name in ("stochastic", "collapsed", "EP", "spectrum"):
        model = CASES[name]
        targets = (y > 0.0).astype(int) if name == "EP" else y
        expected = clone(model).fit(X, targets)
        for after in (2, 3, 4):
            interrupt(model, path, after, X, targets)
        resumed = clone(model).set_callbacks(Checkpoint(path)).fit(X, targets)
        assert_same(resumed, expected, X)


@pytest.mark.filterwarnings("ignore:Kernel 'LIN' could not be fitted")
@pytest.mark.parametrize("case", ["stochastic", "collapsed", "spectrum", "kernels", "neighbours"])
@pytest.mark.every_nth("case", 3)
def test_a_fit_that_was_asked_to_stop_stays_so(case, path):
    X, y = make_data()
    model = CASES[case]
    expected = clone(model).set_callbacks(Interrupt(stop_after=2)).fit(X, y)
    broken = clone(model).set_callbacks(
        Interrupt(stop_after=2), Checkpoint(path, every=100), Interrupt(at_end=True)
    )
    with pytest.raises(InterruptionError):
        broken.fit(X, y)
    count = Interrupt()
    resumed = clone(model).set_callbacks(Checkpoint(path), count).fit(X, y)
    assert_same(resumed, expected, X)
    assert count.n_passes == 2


def test_other_callbacks_hear_of_all_passes_and_see_the_models_of_new_ones(path):
    X, y = make_data()
    model = VBDTCRegressor(**STOCHASTIC, tol=0.0)

    def score(*before):
        monitor = ScoringMonitor(scoring="r2")
        clone(model).set_callbacks(*before, monitor).fit(X, y)
        logs = monitor.get_logs().data
        return {row["task_id_path"]: row["r2"] for row in logs}

    expected = score()
    interrupt(model, path, 3, X, y)
    found = score(Checkpoint(path))
    assert found == {task: r2 for task, r2 in expected.items() if task not in [(0, 0), (0, 1)]}


# -- random generators ---------------------------------------------------------------------------


def test_random_state_none_goes_on_with_its_own_draws(path):
    X, y = make_data()
    model = clone(CASES["stochastic"]).set_params(random_state=None)
    np.random.seed(5)  # noqa: NPY002
    expected = clone(model).fit(X, y)
    after = np.random.uniform()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    interrupt(model, path, 3, X, y)
    np.random.seed(6)  # noqa: NPY002 - another process
    assert_same(clone(model).set_callbacks(Checkpoint(path)).fit(X, y), expected, X)
    assert np.random.uniform() == after  # noqa: NPY002


def test_generator_as_random_state(path):
    X, y = make_data()
    model = CASES["decoupled"]
    expected = clone(model).set_params(random_state=np.random.RandomState(5)).fit(X, y)
    interrupt(clone(model).set_params(random_state=np.random.RandomState(5)), path, 3, X, y)
    resumed = clone(model).set_params(random_state=np.random.RandomState(6))
    assert_same(resumed.set_callbacks(Checkpoint(path)).fit(X, y), expected, X)


# -- files of other fits -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda model, X, y: (model, X + 1e-15, y), "data"),
        (lambda model, X, y: (model, X, y[::-1]), "data"),
        (lambda model, X, y: (model, *shuffle(X, y, random_state=0)), "data"),
        (lambda model, X, y: (model.set_params(learning_rate=0.01), X, y), "parameters"),
        (lambda model, X, y: (model.set_params(random_state=None), X, y), "parameters"),
        (lambda model, X, y: (VBFITCRegressor(**model.get_params(deep=False)), X, y), "estimator"),
        (lambda model, X, y: (model.set_params(warm_start=True).fit(X, y), X, y), "warm start"),
    ],
)
@pytest.mark.every_nth("change", 2)
def test_a_file_of_another_fit_is_an_error(change, what, path):
    X, y = make_data()
    model = VBDTCRegressor(**STOCHASTIC)
    interrupt(model, path, 3, X, y)
    written = path.read_bytes()
    other, X, y = change(clone(model), X, y)
    before = dict(vars(other))
    with pytest.raises(ValueError, match=f"another fit, with other .*{what}"):
        other.set_callbacks(Checkpoint(path)).fit(X, y)
    assert path.read_bytes() == written
    assert vars(other).keys() - {"_skl_callbacks"} == before.keys()


def test_weights_are_data(path):
    X, y = make_data()
    model, weight = CASES["stochastic"], np.linspace(0.5, 1.5, N)
    broken = clone(model).set_callbacks(Checkpoint(path), Interrupt(3))
    with pytest.raises(InterruptionError):
        broken.fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="with other data"):
        clone(model).set_callbacks(Checkpoint(path)).fit(X, y)
    expected = clone(model).fit(X, y, sample_weight=weight)
    resumed = clone(model).set_callbacks(Checkpoint(path)).fit(X, y, sample_weight=weight)
    assert_same(resumed, expected, X)


def test_another_version_is_an_error(path, monkeypatch):
    from skvbgp.base import _checkpoints

    X, y = make_data()
    interrupt(CASES["stochastic"], path, 3, X, y)
    monkeypatch.setattr(_checkpoints, "version", lambda package: "0.0")
    with pytest.raises(ValueError, match="with other versions:"):
        clone(CASES["stochastic"]).set_callbacks(Checkpoint(path)).fit(X, y)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:-50] + b"x" + content[-49:],
        lambda content: b"something else",
    ],
)
@pytest.mark.every_nth("damage", 2)
def test_a_damaged_file_is_an_error(damage, path):
    X, y = make_data()
    interrupt(CASES["stochastic"], path, 3, X, y)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="not a checkpoint, or is damaged"):
        clone(CASES["stochastic"]).set_callbacks(Checkpoint(path)).fit(X, y)


def test_what_cannot_be_done_is_an_error(path, tmp_path):
    X, y = make_data()
    model = VBDTCRegressor(**STOCHASTIC)
    with pytest.raises(FileNotFoundError, match="no directory"):
        clone(model).set_callbacks(Checkpoint(tmp_path / "none" / "fit")).fit(X, y)
    for directory in ("", tmp_path):
        with pytest.raises(IsADirectoryError, match="needs a file"):
            clone(model).set_callbacks(Checkpoint(directory)).fit(X, y)
    with pytest.raises(ValueError, match="one Checkpoint"):
        clone(model).set_callbacks(Checkpoint(path), Checkpoint(path)).fit(X, y)
    with pytest.raises(TypeError, match="estimators of skvbgp"):
        LogisticRegression().set_callbacks(Checkpoint(path)).fit(X, y > 0.0)
    with pytest.raises(ValueError, match="every == 0, must be >= 1"):
        Checkpoint(path, every=0)
    for every in (1.5, "2"):
        with pytest.raises(TypeError, match="every must be an instance of"):
            Checkpoint(path, every=every)
    assert not path.exists()


def test_partial_fit_refuses_a_checkpoint_and_stays_as_it_was(path):
    X, y = make_data()
    model = VBDTCRegressor(**STOCHASTIC).fit(X, y)
    expected = model.predict(X)
    for one in (model, clone(model)):
        with pytest.raises(ValueError, match="Checkpoint is for fit"):
            one.set_callbacks(Checkpoint(path)).partial_fit(X, y)
    assert_array_equal(model.predict(X), expected)


def test_layout_of_arrays_is_kept(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    arrays = [base, base.T, base[::-1, ::-1].T, base[:, 1], base[::2, ::3], base[:0]]
    arrays += [np.broadcast_to(1.5, (3, 2)), np.arange(6)[::-2], np.array("text"), np.eye(3)[1:]]
    with open(tmp_path / "a", "wb") as file:
        _LayoutPickler(file).dump(arrays)
    for array, again in zip(arrays, pickle.loads((tmp_path / "a").read_bytes()), strict=True):
        assert_array_equal(array, again)
        assert array.dtype == again.dtype
        if array.size:
            assert array.strides == again.strides


# -- a process that is gone ----------------------------------------------------------------------

SCRIPT = """
    import os, sys
    import numpy as np
    from skvbgp.callbacks import Checkpoint
    from skvbgp.decoupled import _start
    from tests.callbacks.test_checkpoint import GLOBALLY_RANDOM, Interrupt, make_data

    class Death(Interrupt):
        def on_fit_task_end(self, estimator, context):
            super().on_fit_task_end(estimator, context)
            if self.n_passes == 3: os._exit(7)

    _start._MAX_ITER = int(sys.argv[2])  # of quick_searches
    np.random.seed(5)
    GLOBALLY_RANDOM.set_callbacks(Checkpoint(sys.argv[1]), Death()).fit(*make_data())
"""
GLOBALLY_RANDOM = clone(CASES["decoupled"]).set_params(random_state=None)


@pytest.mark.thorough
def test_a_process_that_was_killed(path):
    X, y = make_data()
    np.random.seed(5)  # noqa: NPY002
    expected = clone(GLOBALLY_RANDOM).fit(X, y)
    script, n_iter = textwrap.dedent(SCRIPT), str(_start._MAX_ITER)
    command = [sys.executable, "-c", script, str(path), n_iter]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    killed = subprocess.run(command, check=False, cwd=Path(__file__).parents[2], env=one_thread)
    assert killed.returncode == 7
    np.random.seed(6)  # noqa: NPY002
    resumed = clone(GLOBALLY_RANDOM).set_callbacks(Checkpoint(path)).fit(X, y)
    assert_same(resumed, expected, X)
