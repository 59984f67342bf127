"""Streams that fade begin again where the function has changed."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_matrix
from scipy.stats import chi2
from sklearn.base import clone

from skvbgp import VBGPRegressor
from skvbgp.base._change import NoticesClasses, NoticesFunctions, find_contradiction, follow_lead
from skvbgp.kernels import RBF
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.ep.cases import INSTANCES as EP
from tests.gp.cases import INSTANCES as GP
from tests.kernel_selection.cases import KERNELS, small
from tests.oracles.change import explain, lead_of_best_start
from tests.sgpr.cases import INSTANCES as SGPR
from tests.spectrum.cases import INSTANCES as SPECTRUM

pytestmark = pytest.mark.usefixtures("quick_searches")

CAP = chi2.isf(1e-4, 1)
SHARE, BEFORE, STEP, N = 0.95, 60, 20, 160


# -- what says so ----------------------------------------------------------------------------------


def test_a_change_is_where_it_explains_most(rng):
    for n in (1, 2, 30):
        surprise = rng.chisquare(1, n) * np.where(np.arange(n) < n // 3, 1.0, 60.0)
        surprise[-2:] = 60.0
        expected = np.argmax([explain(surprise, CAP, c) for c in range(n)])
        assert find_contradiction(surprise) == expected
    surprise = np.repeat([60.0, 0.01], [15, 85])  # rows that agree all too well are no change
    assert find_contradiction(surprise) == 0
    surprise = np.append(rng.chisquare(1, 50), 9.0 * rng.chisquare(1, 50))
    assert abs(find_contradiction(surprise) - 50) < 10


def test_few_outliers_are_no_change(rng):
    surprise = rng.chisquare(1, 200)
    surprise[::100] = 1e6
    assert find_contradiction(surprise) is None
    surprise[160:] = 1e6
    assert find_contradiction(surprise) == 160


def test_rows_are_said_to_contradict_once_in_ten_thousand_calls(rng):
    found = sum(find_contradiction(z2) is not None for z2 in rng.chisquare(1, (2_000, 20)))
    assert found <= 3  # .2 are expected, and more than three with a probability of 6e-5


def test_the_lead_is_that_of_the_best_start(rng):
    is_better = rng.random(60) < 0.6
    leads = follow_lead(0.0, is_better)
    assert_allclose(leads, [lead_of_best_start(is_better[: i + 1]) for i in range(60)], atol=1e-12)
    assert leads.min() == 0.0 < leads.max()
    again = follow_lead(leads[24], is_better[25:])
    assert_allclose(again, leads[25:], atol=1e-12)


def test_a_second_stream_that_is_as_good_does_not_follow_within_ten_thousand_rows(rng):
    """Lorden's bound of the mean number of rows until it does, if it is better at half of them."""
    first = []
    for _ in range(40):
        leads = follow_lead(0.0, rng.random(60_000) < 0.5)
        first.append(np.argmax(np.append(leads, np.inf) >= -np.log(1e-4)))
    assert np.mean(first) > 1e4


# -- streams ---------------------------------------------------------------------------------------


def make_data(rng, d, n=N):
    """Two functions, of which the second follows after BEFORE rows."""
    X = rng.uniform(-2.0, 2.0, (n, d))
    y = np.where(np.arange(n) < BEFORE, np.sin(2.0 * X[:, 0]), 3.0 + 0.5 * X[:, 0] ** 2)
    return X, y + 0.05 * rng.standard_normal(n)


def stream(model, X, y, start=0, stop=N, step=STEP, **given):
    for i in range(start, stop, step):
        rows = slice(i, min(i + step, stop))
        some = {name: v if name == "classes" else v[rows] for name, v in given.items()}
        model.partial_fit(X[rows], y[rows], **some)
    return model


def first_of_each(kind):
    every = [*GP, *SGPR, *SPECTRUM, *DECOUPLED, *EP, small(kernels=KERNELS[:1])]
    chosen = [clone(e) for e in every if isinstance(e, kind)]
    return [next(e for e in chosen if type(e) is cls) for cls in dict.fromkeys(map(type, chosen))]


REGRESSORS, CLASSIFIERS = first_of_each(NoticesFunctions), first_of_each(NoticesClasses)


def test_all_estimators_but_hybrid_notice_changes():
    assert len(REGRESSORS) == 8 and len(CLASSIFIERS) == 3


@pytest.mark.parametrize("estimator", REGRESSORS, ids=repr)
@pytest.mark.every_nth("estimator", 4)
def test_after_a_change_a_stream_is_what_begins_there(estimator, rng):
    """As a call with as many rows is the first one of both, to the last digit but rounding."""
    estimator = clone(estimator).set_params(forgetting=SHARE, max_iter=2)
    X, y = make_data(rng, 1)
    model = stream(clone(estimator), X, y)
    expected = stream(clone(estimator), X[BEFORE:], y[BEFORE:], stop=N - BEFORE)
    for one, other in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == N and expected.n_samples_seen_ == N - BEFORE
    assert model.get_params() == estimator.get_params()


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
@pytest.mark.every_nth("classifier", 2)
def test_so_it_is_with_classes(classifier, rng):
    X = rng.uniform(-2.0, 2.0, (300, 1))
    y = np.where((X[:, 0] > 0.0) == (np.arange(300) < 150), "yes", "no")
    classifier = clone(classifier).set_params(forgetting=SHARE)
    model = stream(clone(classifier), X, y, stop=300, step=50, classes=["yes", "no"])
    expected = clone(classifier)
    stream(expected, X[150:], y[150:], stop=150, step=50, classes=["yes", "no"])
    assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == 300


def make_model(**settings):
    given = {"kernel": RBF(), "max_iter": 2, "random_state": 0, "forgetting": SHARE}
    return VBGPRegressor(**(given | settings))


def test_rows_of_a_call_before_the_change_are_left_behind(rng):
    """And what each row counts goes with it, known noise and rows of weight zero, too."""
    X, y = make_data(rng, 1)
    given = {"sample_weight": rng.integers(0, 3, N) * 1.0, "y_var": rng.uniform(0.0, 0.01, N)}
    model = make_model().partial_fit(X[:50], y[:50], given["sample_weight"][:50])
    stream(model, X, y, start=50, step=30, **given)
    expected = stream(make_model(), X, y, start=BEFORE, stop=80, **given)
    stream(expected, X, y, start=80, step=30, **given)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6)
    assert model.n_samples_seen_ == N
    assert_array_equal(np.isfinite(model.loo_predict()[0])[:BEFORE], False)
    assert model.loo_predict()[0].shape == (N,)


@pytest.mark.parametrize(
    "together",
    [{}, {"output_covariance": "learned"}, {"output_hyperparameters": "shared"}],
)
def test_outputs_change_together(together, rng):
    X, y = make_data(rng, 1)
    Y = np.column_stack([y, -y])
    Y[rng.random(N) < 0.2, 1] = np.nan
    model = stream(make_model(**together), X, Y)
    expected = stream(make_model(**together), X[BEFORE:], Y[BEFORE:], stop=N - BEFORE)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == N
    known = np.isfinite(model.loo_predict()[0])
    assert known.shape == (N, 2) and not known[:BEFORE].any()
    assert_array_equal(known[BEFORE:], np.isfinite(expected.loo_predict()[0]))


def test_a_second_stream_that_cannot_begin_does_not_stop_the_first(rng):
    """Here an output is not observed after the change."""
    X, y = make_data(rng, 1)
    Y = np.column_stack([y, y])
    Y[BEFORE:, 1] = np.nan
    model = stream(make_model(), X, Y)
    assert model.n_samples_seen_ == N and not hasattr(model, "_second")


@pytest.mark.parametrize("kind", ["list", "pandas", "sparse"])
def test_rows_are_taken_from_whatever_has_them(kind, rng):
    X, y = make_data(rng, 1)
    if kind == "pandas":
        make = pytest.importorskip("pandas").DataFrame
        given = lambda rows: make(X[rows], columns=["x"])  # noqa: E731
    else:
        given = lambda rows: X[rows].tolist() if kind == "list" else coo_matrix(X[rows])  # noqa: E731
    model, expected = make_model(), stream(make_model(), X, y)
    for i in range(0, N, STEP):
        rows = slice(i, i + STEP)
        model.partial_fit(given(rows), y[rows].tolist())
    assert_allclose(model.predict(given(slice(N))), expected.predict(X), rtol=1e-9)


def test_a_second_stream_is_given_up_when_the_first_has_forgotten(rng):
    """Noise that has grown contradicts predictions, and no stream is better at it."""
    X = rng.uniform(-2.0, 2.0, (N, 1))
    y = np.sin(X[:, 0]) + np.where(np.arange(N) < BEFORE, 0.02, 1.5) * rng.standard_normal(N)
    settings = {"learn_hyperparameters": False}  # which keep the noise
    model, second = make_model(**settings), []
    for i in range(0, N, STEP):
        model.partial_fit(X[i : i + STEP], y[i : i + STEP])
        second.append(hasattr(model, "_second"))
    weight = SHARE ** np.arange(N - 1.0, -1.0, -1.0)
    weight[weight < 0.01] = 0.0
    expected = make_model(forgetting=1, **settings).fit(X, y, sample_weight=weight)
    begun = second.index(True)
    assert second[begun : begun + 4] == [True] * 3 + [False]  # 58 rows are remembered
    assert_allclose(model.predict(X), expected.predict(X), rtol=1e-6)


def test_windows_and_streams_that_forget_nothing_never_begin_again(rng):
    X, y = make_data(rng, 1)
    for forgetting in (1, 200):
        model = stream(make_model(forgetting=forgetting), X, y)
        assert not hasattr(model, "_second")
        assert np.isfinite(model.loo_predict()[0]).all()


def test_a_call_that_fails_leaves_both_streams(rng):
    X, y = make_data(rng, 1)
    model = stream(make_model(), X, y, stop=BEFORE + STEP)
    assert hasattr(model, "_second")
    before, rest = pickle.dumps(vars(model)), slice(BEFORE + STEP, None)
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[rest], y[rest], sample_weight=-1.0)
    assert pickle.dumps(vars(model)) == before
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        stream(one, X, y, start=BEFORE + STEP)
        assert not hasattr(one, "_second")
    assert_allclose(model.predict(X), other.predict(X), rtol=1e-9)
    model = stream(make_model(), X, y, stop=BEFORE + STEP).fit(X, y)
    assert not hasattr(model, "_second")


def test_callbacks_follow_the_first_stream(rng):
    X, y = make_data(rng, 1)

    class Counts:
        n = 0

        def setup(self, estimator, context):
            self.n += 1

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, *args, **kwargs):
            pass

        def on_fit_task_end(self, *args, **kwargs):
            pass

    counts = Counts()
    model = make_model().set_callbacks(counts)
    stream(model, X, y, stop=BEFORE + STEP)
    assert not [name for name in vars(model._second.model) if "callback" in name]
    stream(model, X, y, start=BEFORE + STEP)
    assert counts.n == N // STEP
    assert model.n_samples_seen_ == N and not hasattr(model, "_second")
