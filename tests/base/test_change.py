"""Streams that fade begin again where the function has changed."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_matrix
from sklearn.base import clone

from skvbgp import VBGPRegressor
from skvbgp._core.linalg import NotPositiveDefiniteError
from skvbgp.base._change import (
    Judged,
    NoticesChange,
    NoticesClasses,
    NoticesFunctions,
    Second,
    compare,
    find_change,
    follow,
    suspect,
    suspect_labels,
)
from skvbgp.kernels import RBF
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.ep.cases import INSTANCES as EP
from tests.gp.cases import INSTANCES as GP
from tests.kernel_selection.cases import KERNELS, small
from tests.observer import Observer
from tests.oracles import change as oracle
from tests.sgpr.cases import INSTANCES as SGPR
from tests.spectrum.cases import INSTANCES as SPECTRUM

pytestmark = pytest.mark.usefixtures("quick_searches")

CAP = 9.0
SHARE, BEFORE, OPEN, STEP, N = 0.95, 60, 66, 20, 160


# -- what says so ----------------------------------------------------------------------------------


def doubt(surprise, memory=100.0, restarts=True):
    return find_change(surprise, suspect(surprise), memory, 100.0, restarts=restarts)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_change_is_where_it_costs_least(restarts, rng):
    for n in (1, 5, 15, 30):
        for growth in (1.0, 2.0, 60.0):
            surprise = rng.chisquare(1, n) * np.where(np.arange(n) < n // 3, 1.0, growth)
            for memory in (100.0, 400.0):
                expected = oracle.find_change(surprise, memory, CAP, restarts)
                assert doubt(surprise, memory, restarts) == expected
    surprise = np.repeat([60.0, 0.01], [15, 85])  # rows that agree all too well are no change
    assert doubt(surprise, restarts=restarts).first < 5
    surprise = np.append(rng.chisquare(1, 50), 9.0 * rng.chisquare(1, 50))
    assert doubt(surprise).is_change and 0 <= doubt(surprise).first - 50 < 8


def test_hardly_a_row_of_the_old_function_is_kept_and_few_of_the_new_one_are_lost(rng):
    """Whatever the size of the errors, and with outliers."""
    for growth, share, most in [(9.0, 0.0, 0.1), (1e4, 0.0, 0.05), (1e4, 0.02, 0.05)]:
        first = []
        for _ in range(100):
            surprise = rng.chisquare(1, 120) * np.where(np.arange(120) < 90, 1.0, growth)
            surprise[rng.random(120) < share] = 1e6
            found = doubt(surprise)
            first.append(found.first - 90 if found.is_change else 0)
        assert np.mean(np.array(first) < 0) < most
        assert np.mean(first) < 6.0
    assert doubt(np.append(np.ones(9), np.full(6, np.inf))).first >= 9


def test_rows_go_on_from_those_that_a_change_may_explain(rng):
    """So what calls say does not depend on how many rows are in each."""
    surprise = rng.chisquare(1, 300) * np.where(np.arange(300) < 220, 1.0, 4.0)
    first, stop, start = 0, 0, None
    while start is None:
        stop += 1
        found = doubt(surprise[first:stop])
        start = first + found.first if found.is_change else None
        first += found.first
    expected = doubt(surprise[:stop])
    assert (start, True) == expected and abs(start - 220) < 8 and 220 < stop < 250


def test_no_more_rows_are_kept_than_are_remembered(rng):
    surprise = np.full(60, 1.5)  # of which each is a little evidence
    assert doubt(surprise, 1e9) == (0, False)
    assert doubt(surprise, 20.5) == (40, False)


def test_few_outliers_are_no_change(rng):
    surprise = rng.chisquare(1, 200)
    surprise[::100] = 1e6
    assert not doubt(surprise).is_change
    surprise[160:] = 1e6
    assert doubt(surprise).is_change and 160 <= doubt(surprise).first < 164


def test_evidence_is_a_likelihood_ratio_and_bounded(rng):
    surprise, p = 3.0 * rng.chisquare(1, 50), rng.uniform(0.0, 1.0, 50)
    assert_allclose(suspect(surprise), [oracle.suspect(s, CAP) for s in surprise], atol=1e-12)
    expected = [oracle.suspect_label(one, 3, CAP) for one in p]
    assert_allclose(suspect_labels(p, 3), expected, atol=1e-12)
    assert suspect_labels(np.zeros(1), 3) == suspect(np.array(np.inf))
    first, second = 3.0 * rng.standard_normal((2, 50))
    expected = [oracle.compare(*pair) for pair in zip(second, first, strict=True)]
    assert_allclose(compare(second - first), expected, atol=1e-12)
    assert_allclose(compare(np.array([-1e4, 1e4])), np.log([0.5, 5.5]))


class Says(NoticesFunctions):
    """Predicts what it is given."""

    def __init__(self, mean, std):
        self.moments = mean, std

    def predict(self, X, return_std, y_var):
        return self.moments


def look_ahead(first, second, y):
    said = (model._predict_known(None, y, {"y_var": 0.0}) for model in (first, second.model))
    return first._look_ahead(second, *said)


def test_two_models_are_compared_by_their_means(rng):
    y, one, other = rng.standard_normal((3, 20, 2))
    std, other_std = rng.uniform(0.5, 2.0, (2, 20, 2))
    y[:5, 0], y[3, 1] = np.nan, np.nan
    for scale in (0.1, 1.0, 10.0):  # noise that neither expects, and less than that
        before = Second(Says(other, scale * other_std), 0, n_compared=7, squares=(5.0, 20.0))
        found = look_ahead(Says(one, scale * std), before, y)
        models = (one, scale * std), (other, scale * other_std)
        expected = oracle.look_ahead(y, *models, 7, before.squares)
        assert_allclose(found[0], expected[0], atol=1e-12)
        assert_allclose(found[1], expected[1])
    wider = Second(Says(one[:, 0], 9.0 * std[:, 0]), 0)
    ahead, _ = look_ahead(Says(one[:, 0], std[:, 0]), wider, y[:, :1])
    assert_array_equal(ahead[5:], 0.0)  # a wider interval says nothing about the function


def test_a_model_that_takes_two_functions_for_noise_does_not_hide_that_another_is_better(rng):
    y, one = 0.1 * rng.standard_normal(40), np.ones(40)
    first, second = Says(1.5 * one, 2.0 * one), Second(Says(0.0 * one, 0.1 * one), 0)
    ahead, squares = look_ahead(first, second, y)
    assert follow(0.0, compare(ahead)).max() > np.log(100.0)
    later = second._replace(n_compared=40, squares=squares)
    again, _ = look_ahead(first, later, y)
    assert np.all(again > 1.5 * ahead)  # the more rows, the better it is known


def test_ratios_are_one_on_average_if_predictions_are_right(rng):
    """What Lorden's bound and Page's statistic need; by integrals, and sums over labels."""
    z = np.linspace(-12.0, 12.0, 20_001)
    density, step = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi), z[1] - z[0]
    assert 0.9 < np.sum(density * np.exp(suspect(z**2))) * step <= 1.0
    p = rng.dirichlet(np.ones(4), 20)
    assert_allclose(np.sum(p * np.exp(suspect_labels(p, 4)), axis=1).max(), 1.0, atol=1e-12)
    n = 1e9  # rows before, which say how large errors are
    for std in (0.5, 1.5):
        larger = max(1.0, std) ** 2
        squares = n / larger, 1.25 * n / larger
        second = Second(Says(0.5 + 0.0 * z, std + 0.0 * z), 0, n_compared=n, squares=squares)
        ahead, _ = look_ahead(Says(0.0 * z, 1.0 + 0.0 * z), second, z)
        assert 0.9 < np.sum(density * np.exp(compare(ahead))) * step <= 1.0


def test_the_lead_is_that_of_the_best_start(rng):
    evidence = rng.standard_normal(60)
    leads = follow(0.0, evidence)
    expected = [oracle.lead_of_best_start(evidence[: i + 1]) for i in range(60)]
    assert_allclose(leads, expected, atol=1e-12)
    assert leads.min() == 0.0 < leads.max()
    assert_allclose(follow(leads[24], evidence[25:]), leads[25:], atol=1e-12)


def test_no_change_is_found_in_more_than_a_hundred_rows_on_average(rng):
    """Lorden's bound of the mean number of rows until there seems to be one, if there is none."""
    first = []
    for _ in range(100):
        leads = follow(0.0, suspect(rng.chisquare(1, 5_000)))
        first.append(np.argmax(np.append(leads, np.inf) >= np.log(100.0)))
    assert np.mean(first) > 1_000  # it is about 3,000


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


@pytest.fixture
def begun(monkeypatch):
    """How many rows were before each stream that has begun beside a first one."""
    numbers, begin = [], NoticesChange._begin_with

    def watch(model, calls):
        numbers.append(calls[0].n_before)
        return begin(model, calls)

    monkeypatch.setattr(NoticesChange, "_begin_with", watch)
    return numbers


def stream_from(first, model, X, y, step=STEP, stop=N, **given):
    """The stream of the rows from one on, in the same calls."""
    end = step * (first // step + 1)
    stream(model, X, y, start=first, stop=end, step=step, **given)
    return stream(model, X, y, start=end, stop=stop, step=step, **given)


def stream_into_doubt(model, X, y):
    """A stream of the first OPEN rows, too few for it to be sure that there was a change."""
    stream(model, X, y, stop=BEFORE + 4)
    model.partial_fit(X[BEFORE + 4 : OPEN], y[BEFORE + 4 : OPEN])
    assert hasattr(model, "_second")
    return model


def first_of_each(kind):
    every = [*GP, *SGPR, *SPECTRUM, *DECOUPLED, *EP, small(kernels=KERNELS[:1])]
    chosen = [clone(e) for e in every if isinstance(e, kind)]
    return [next(e for e in chosen if type(e) is cls) for cls in dict.fromkeys(map(type, chosen))]


REGRESSORS, CLASSIFIERS = first_of_each(NoticesFunctions), first_of_each(NoticesClasses)
*OTHERS, QUICKEST = CLASSIFIERS
each_classifier = pytest.mark.parametrize(
    "classifier",
    [*(pytest.param(c, marks=pytest.mark.thorough) for c in OTHERS), QUICKEST],
    ids=repr,
)


def test_all_estimators_but_hybrid_notice_changes():
    assert len(REGRESSORS) == 8 and len(CLASSIFIERS) == 3


@pytest.mark.parametrize("estimator", REGRESSORS, ids=repr)
@pytest.mark.every_nth("estimator", 8)
def test_after_a_change_a_stream_is_what_begins_there(estimator, begun, rng):
    """To the last digit but rounding, where at most a few rows may be of the old function."""
    estimator = clone(estimator).set_params(forgetting=SHARE, max_iter=2)
    X, y = make_data(rng, 1)
    model = stream(clone(estimator), X, y, stop=120)
    first = begun[-1]
    assert BEFORE <= first < BEFORE + 6
    expected = stream_from(first, clone(estimator), X, y, stop=120)
    for one, other in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == 120 and expected.n_samples_seen_ == 120 - first
    assert model.get_params() == estimator.get_params()


@each_classifier
def test_so_it_is_with_classes(classifier, begun, rng):
    X = rng.uniform(-2.0, 2.0, (200, 1))
    y = np.where((X[:, 0] > 0.0) == (np.arange(200) < 100), "yes", "no")
    classifier = clone(classifier).set_params(forgetting=SHARE)
    given = {"step": 40, "stop": 200, "classes": ["yes", "no"]}
    model = stream(clone(classifier), X, y, **given)
    assert 100 <= begun[-1] < 106
    expected = stream_from(begun[-1], clone(classifier), X, y, **given)
    assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == 200


@each_classifier
@pytest.mark.parametrize("given", ["class_weight", "sample_weight"])
@pytest.mark.every_nth("given", 2)
def test_rows_are_judged_as_often_as_they_come(classifier, given, begun):
    """Those of a class that counts a hundred times are not a hundred times as many."""
    rng = np.random.RandomState(0)
    y = (rng.rand(200) < 0.05).astype(int)
    X = rng.randn(200, 2) + np.column_stack([1.5 * y, np.zeros(200)])
    model = clone(classifier).set_params(forgetting=0.995)
    weights = {}
    if given == "class_weight":
        model.set_params(class_weight={1: 100.0})
    else:
        weights = {"sample_weight": np.where(y == 1, 100.0, 1.0)}
    stream(model, X, y, stop=200, step=40, classes=[0, 1], **weights)
    assert not begun


def make_model(**settings):
    given = {"kernel": RBF(), "max_iter": 2, "random_state": 0, "forgetting": SHARE}
    return VBGPRegressor(**(given | settings))


def test_a_second_stream_that_is_wrong_as_well_makes_way_for_another(begun, rng):
    """One that began without a change knows the old function, too."""
    X, y = make_data(rng, 1)
    slow = make_model(forgetting=0.999)
    model = stream(clone(slow), X, y, stop=BEFORE)
    idle = Second(stream(clone(slow), X, y, start=20, stop=BEFORE), 20, lead=1.0)
    model._keep_in_doubt("_second", idle)
    stream(model, X, y, start=BEFORE, stop=120)
    first = begun[-1]
    assert BEFORE <= first < BEFORE + 6
    expected = stream_from(first, clone(slow), X, y, stop=120)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6)


def test_one_model_that_is_right_is_enough_to_say_that_there_was_no_change(rng):
    surprise = rng.chisquare(1, (2, 50))
    one, other = (Judged(s, suspect(s)) for s in surprise)
    assert_array_equal(one.agreed(other).surprise, surprise.min(axis=0))
    assert_array_equal(one.agreed(other).evidence, suspect(surprise).min(axis=0))


def test_rows_of_a_call_before_the_change_are_left_behind(begun, rng):
    """And what each row counts goes with it, known noise and rows of weight zero, too."""
    X, y = make_data(rng, 1)
    given = {"sample_weight": rng.integers(0, 3, N) * 1.0, "y_var": rng.uniform(0.0, 0.01, N)}
    model = make_model().partial_fit(X[:50], y[:50], given["sample_weight"][:50])
    stream(model, X, y, start=50, step=30, **given)
    first = begun[-1]
    assert BEFORE <= first < BEFORE + 6
    expected = stream(make_model(), X, y, start=first, stop=80, **given)
    stream(expected, X, y, start=80, step=30, **given)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6)
    assert model.n_samples_seen_ == N
    assert_array_equal(np.isfinite(model.loo_predict()[0])[:first], False)
    assert model.loo_predict()[0].shape == (N,)


def test_rows_of_earlier_calls_belong_to_the_second_stream(rng):
    """Here no call says enough by itself; what the user has written over since does not matter."""
    X, noise, step = rng.uniform(-2.0, 2.0, (N, 1)), rng.standard_normal(N), 4
    y = np.sin(X[:, 0]) + 0.2 * noise + 0.6 * (np.arange(N) > BEFORE)
    weight = np.ones(N)
    weight[::9] = 0.0
    model, stop = make_model().partial_fit(X[:40], y[:40]), 40
    while not hasattr(model, "_second"):
        some = [values[stop : stop + step].copy() for values in (X, y, weight)]
        stop += step
        model.partial_fit(*some)
        some[0][:], some[1][:] = np.nan, np.nan
    second = model._second.model
    start = second._state.rows.n_before
    assert abs(start - BEFORE) < 10 and start < stop - step
    end = step * (start // step + 1)
    expected = make_model().partial_fit(X[start:end], y[start:end], weight[start:end])
    stream(expected, X, y, start=end, stop=stop, step=step, sample_weight=weight)
    assert_allclose(second.predict(X, True), expected.predict(X, True), rtol=1e-6, atol=1e-9)
    assert second.n_samples_seen_ == model.n_samples_seen_


@pytest.mark.parametrize(
    "together",
    [
        {},
        pytest.param({"output_covariance": "learned"}, marks=pytest.mark.thorough),
        pytest.param({"output_hyperparameters": "shared"}, marks=pytest.mark.thorough),
    ],
)
def test_outputs_change_together(together, begun, rng):
    X, y = make_data(rng, 1)
    Y = np.column_stack([y, -y])
    Y[rng.random(N) < 0.2, 1] = np.nan
    model = stream(make_model(**together), X, Y, stop=120)
    first = begun[-1]
    assert BEFORE <= first < BEFORE + 6
    expected = stream_from(first, make_model(**together), X, Y, stop=120)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6, atol=1e-6)
    assert model.n_samples_seen_ == 120
    known = np.isfinite(model.loo_predict()[0])
    assert known.shape == (120, 2) and not known[:first].any()
    assert_array_equal(known[first:], np.isfinite(expected.loo_predict()[0]))


@pytest.mark.parametrize(
    "step", [8 * STEP, *(pytest.param(n, marks=pytest.mark.thorough) for n in (8, 4, 1))]
)
def test_rows_without_any_target_are_no_evidence(step, begun, rng):
    """A change is found at the row where it would be without them, in calls of none as well."""
    X, y = make_data(rng, 1)
    rows = np.repeat(np.arange(N), 8)
    Y = np.column_stack([y, -y])[rows]
    Y[np.arange(8 * N) % 8 > 0] = np.nan
    model = VBGPRegressor(RBF(), forgetting=0.995, learn_hyperparameters=False)
    model.fit(X[:40], np.column_stack([y, -y])[:40])
    stream(model, X[rows], Y, start=8 * 40, stop=8 * BEFORE + 8 * 20, step=step)
    assert BEFORE - 40 <= (begun[-1] - 40) // 8 < BEFORE - 40 + 4


def test_calls_that_are_kept_are_copies(rng):
    """Whoever calls may write to the arrays of the call before."""
    X, y = make_data(rng, 1)
    Y = np.column_stack([y, -y])
    model = make_model(learn_hyperparameters=False, forgetting=0.99).fit(X[:40], Y[:40])
    new = X[40:42].copy(), Y[40:42] + 1.0
    for rows, targets in (new, (new[0], np.full((2, 2), np.nan))):
        model.partial_fit(rows, targets)
        kept = model._doubted[-1].data
        assert not np.shares_memory(kept[0], rows) and not np.shares_memory(kept[1], targets)
    assert len(model._doubted) == 2


@pytest.mark.parametrize("error", [None, NotPositiveDefiniteError("no factor")])
@pytest.mark.every_nth("error", 2)
def test_a_second_stream_that_cannot_begin_does_not_stop_the_first(error, monkeypatch, rng):
    """An output is not observed after the change, or what begins cannot be computed with."""
    X, y = make_data(rng, 1)
    Y = np.column_stack([y, y])
    if error is None:
        Y[BEFORE:, 1] = np.nan
    else:

        def fail(*data):
            raise error

        monkeypatch.setattr(NoticesChange, "_begin_with", fail)
    model = stream(make_model(), X, Y)
    assert model.n_samples_seen_ == N and not hasattr(model, "_second")


@pytest.mark.parametrize("kind", ["list", "pandas", "sparse"])
@pytest.mark.every_nth("kind", 2)
def test_rows_are_taken_from_whatever_has_them(kind, rng):
    X, y = make_data(rng, 1)
    if kind == "pandas":
        make = pytest.importorskip("pandas").DataFrame
        given = lambda rows: make(X[rows], columns=["x"])  # noqa: E731
    else:
        given = lambda rows: X[rows].tolist() if kind == "list" else coo_matrix(X[rows])  # noqa: E731
    model, expected = make_model(), stream(make_model(), X, y, stop=100)
    for i in range(0, 100, STEP):
        rows = slice(i, i + STEP)
        model.partial_fit(given(rows), y[rows].tolist())
    assert_allclose(model.predict(given(slice(N))), expected.predict(X), rtol=1e-9)


def test_a_second_stream_is_given_up_when_it_knows_as_much_and_is_not_ahead(rng):
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
    assert second[begun : begun + 2] == [True, False]  # rows count as many as 20 do
    assert_allclose(model.predict(X), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.every_nth("behind", 2)
def test_a_second_stream_is_given_up_when_it_is_behind_or_open_for_long(behind, rng):
    X, y = make_data(rng, 1)
    model = stream_into_doubt(make_model(), X, y)
    second = model._second
    lead, lag, n_compared = (0.0, 3.0, 0) if behind else (3.0, 0.0, 50)  # 58 are remembered
    for n_before, gives_up in ((second.n_before, not behind), (10, True)):
        now, leads = copy.copy(model), {"lead": lead, "lag": lag}
        now._second = second._replace(n_before=n_before, n_compared=n_compared, **leads)
        now.partial_fit(X[:10], y[:10])  # rows of the old function
        # while it knows fewer rows than the first did, it may well be behind
        assert hasattr(now, "_second") is not gives_up
    model._second = second._replace(n_before=10, lead=2.0, lag=1.0)
    model.partial_fit(X[OPEN : OPEN + 1], y[OPEN : OPEN + 1])
    assert hasattr(model, "_second")  # it knows as many, and is ahead


def test_rows_after_a_change_that_come_all_at_once_are_enough(begun, rng):
    """Half of them say that what knows the other half is better; and not if nothing changes."""
    X, y = make_data(rng, 1)
    model = stream(make_model(), X, y, stop=BEFORE).partial_fit(X[BEFORE:], y[BEFORE:])
    expected = make_model().partial_fit(X[begun[-1] :], y[begun[-1] :])
    assert BEFORE <= begun[-1] < BEFORE + 6
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-6)
    assert not hasattr(model, "_second") and model.n_samples_seen_ == N
    X = rng.uniform(-2.0, 2.0, (N, 1))
    y = np.sin(X[:, 0]) + np.where(np.arange(N) < BEFORE, 0.02, 1.5) * rng.standard_normal(N)
    settings = {"learn_hyperparameters": False}  # which keep the noise, so that all is contradicted
    model = make_model(**settings).partial_fit(X[:BEFORE], y[:BEFORE])
    model.partial_fit(X[BEFORE:], y[BEFORE:])
    assert hasattr(model, "_second") and model._state.rows.n_before == 0


def test_windows_and_streams_that_forget_nothing_never_begin_again(rng):
    X, y = make_data(rng, 1)
    for forgetting in (1, 200):
        model = stream(make_model(forgetting=forgetting), X, y)
        assert not hasattr(model, "_second")
        assert np.isfinite(model.loo_predict()[0]).all()


def test_a_call_that_fails_leaves_both_streams(rng):
    X, y = make_data(rng, 1)
    model = stream_into_doubt(make_model(), X, y)
    before, rest = pickle.dumps(vars(model)), slice(OPEN, None)
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[rest], y[rest], sample_weight=-1.0)
    assert pickle.dumps(vars(model)) == before
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        stream(one, X, y, start=OPEN, stop=120)
        assert not hasattr(one, "_second")
    assert_allclose(model.predict(X), other.predict(X), rtol=1e-9)
    model = stream_into_doubt(make_model(), X, y).fit(X, y)
    assert not hasattr(model, "_second")


def test_callbacks_follow_the_first_stream(rng):
    X, y = make_data(rng, 1)

    class Counts(Observer):
        n = 0

        def setup(self, estimator, context):
            self.n += 1

    counts = Counts()
    model = make_model().set_callbacks(counts)
    stream_into_doubt(model, X, y)
    assert not [name for name in vars(model._second.model) if "callback" in name]
    stream(model, X, y, start=OPEN)
    assert counts.n == 5 + 5  # calls before, and after
    assert model.n_samples_seen_ == N and not hasattr(model, "_second")
