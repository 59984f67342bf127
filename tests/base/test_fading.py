"""Streams that forget by fits to the rows that still count."""

import inspect
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBPITCRegressor
from skvbgp.base import ForgetfulRegressor, ForgetsLabels, LeavesOut
from tests.decoupled.cases import INSTANCES as DECOUPLED
from tests.ep.cases import INSTANCES as EP
from tests.gp.cases import CLASSIFIERS as GP
from tests.sgpr.cases import INSTANCES as SGPR
from tests.sgpr.cases import make_data
from tests.spectrum.cases import INSTANCES as SPECTRUM

pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture(autouse=True)
def sees_no_change(monkeypatch):
    """Rows contradict models of one step; what is asked here is what they count by their age."""
    monkeypatch.setattr("skvbgp.base._change._ODDS", np.inf)


def once(estimators, kind):
    """Those of a kind, with one pass: what is compared has as many, however many these are."""
    return [clone(e).set_params(max_iter=1) for e in estimators if isinstance(e, kind)]


EVERY = once([*SPECTRUM, *DECOUPLED, *SGPR], ForgetfulRegressor)
CLASSES = list(dict.fromkeys(map(type, EVERY)))
FIRST = [next(e for e in EVERY if type(e) is cls) for cls in CLASSES]
#: What all regressors share is asked of one in three of them: blocks of one kind are enough.
BY_TURNS = [
    pytest.param(e, marks=pytest.mark.thorough if type(e) is VBPITCRegressor else []) for e in FIRST
]


def each(test):
    test = pytest.mark.parametrize("estimator", BY_TURNS, ids=repr)(test)
    return pytest.mark.every_nth("estimator", 3)(test)


NEAR = [e for e in GP if not isinstance(e.n_inducing, int)]  # rows there are not forgotten
LABELLING = once([*NEAR, *EP, *DECOUPLED], ForgetsLabels)
OTHERS = [c for i, c in enumerate(LABELLING) if type(c) in map(type, LABELLING[:i])]
CLASSIFIERS_BY_TURNS = [
    pytest.param(c, marks=pytest.mark.thorough if c in OTHERS else []) for c in LABELLING
]


def each_classifier(test):
    test = pytest.mark.parametrize("classifier", CLASSIFIERS_BY_TURNS, ids=repr)(test)
    return pytest.mark.every_nth("classifier", 2)(test)


N, SHARE, WINDOW = 54, 0.9, 25
#: Rows of the calls, of which the last one alone may be more than a window.
STEPS = [[18, 36, 54], [20, 54]]


def stream(estimator, ends, X, y, classes=None, **metadata):
    model, start = clone(estimator), 0
    known = {} if classes is None else {"classes": classes}
    for end in ends:
        some = {name: values[start:end] for name, values in metadata.items()}
        model.partial_fit(X[start:end], y[start:end], **some, **known)
        start = end
    return model


def weigh(forgetting, n=N):
    """What rows of a stream are to count."""
    age = np.arange(n - 1.0, -1.0, -1.0)
    if forgetting > 1:
        return (age < forgetting).astype(float)
    return np.where(forgetting**age < 0.01, 0.0, forgetting**age)


def draw_metadata(rng):
    weight = rng.integers(0, 3, N) * rng.uniform(0.5, 2.0, N)
    weight[[17, 19, 35, 53]] = 1.0
    return {"sample_weight": weight, "y_var": rng.uniform(0.0, 0.3, N)}


def assert_same(model, expected, X):
    for one, other in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-6)  # where rows lie in memory is rounding


@pytest.mark.parametrize("ends", STEPS, ids=str)
@pytest.mark.parametrize("forgetting", [SHARE, WINDOW])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("estimator", EVERY, ids=repr)
@pytest.mark.in_turn("ends", "known", "forgetting")
@pytest.mark.every_nth("estimator", 3)
@pytest.mark.every_nth("ends", 3)
def test_a_stream_is_a_fit_to_rows_by_their_age(estimator, known, forgetting, ends, rng):
    """Nothing is left of what came before."""
    X, y = make_data(N)
    y[:20] += 30.0
    given = draw_metadata(rng) if known else {}
    model = stream(clone(estimator).set_params(forgetting=forgetting), ends, X, y, **given)
    weight = weigh(forgetting) * given.get("sample_weight", 1.0)
    counts = weight > 0.0  # a fit without the others, not with zeros
    noise = {"y_var": given["y_var"][counts]} if known else {}
    expected = clone(estimator).fit(X[counts], y[counts], sample_weight=weight[counts], **noise)
    assert_same(model, expected, X)
    assert model.n_samples_seen_ == np.count_nonzero(given.get("sample_weight", np.ones(N)))
    assert expected.n_samples_seen_ == np.count_nonzero(counts) < model.n_samples_seen_


@each
@pytest.mark.parametrize("forgetting", [SHARE, WINDOW])
@pytest.mark.in_turn("forgetting")
def test_outputs_forget_by_all_rows(estimator, forgetting, rng):
    X, y = make_data(N)
    Y = np.column_stack([y, -y])
    Y[rng.random(N) < 0.3, 1] = np.nan
    model = stream(clone(estimator).set_params(forgetting=forgetting), STEPS[0], X, Y)
    expected = clone(estimator).fit(X, Y, sample_weight=weigh(forgetting))
    assert_same(model, expected, X)
    assert model.n_samples_seen_ == N


@each
def test_a_fit_weighs_all_rows_alike_and_then_they_fade(estimator):
    X, y = make_data(N)
    model = clone(estimator).set_params(forgetting=SHARE).fit(X[:20], y[:20])
    assert_same(model, clone(estimator).fit(X[:20], y[:20]), X)
    model.partial_fit(X[20:40], y[20:40])
    weight = SHARE ** np.minimum(np.arange(39.0, -1.0, -1.0), 20.0)
    weight[20:] = SHARE ** np.arange(19.0, -1.0, -1.0)
    assert_same(model, clone(estimator).fit(X[:40], y[:40], sample_weight=weight), X)


@each
def test_the_newest_rows_of_a_fit_are_in_the_window(estimator):
    X, y = make_data(N)
    model = clone(estimator).set_params(forgetting=WINDOW).fit(X[:50], y[:50])
    model.partial_fit(X[50:], y[50:])
    assert_same(model, clone(estimator).fit(X[-WINDOW:], y[-WINDOW:]), X)
    assert len(model._stream.age) == WINDOW and model.n_samples_seen_ == N


@each
def test_single_rows_come_and_go(estimator):
    """The rows that are kept are bounded, and so is the time of a call."""
    X, y = make_data(7)
    for forgetting, kept in ((3, 3), (0.2, 3)):  # 0.2 ** 3 is less than a hundredth
        model = clone(estimator).set_params(forgetting=forgetting, max_iter=1)
        stream(model, range(1, 4), X, y)
        model.fit(X[:1], y[:1])
        for i in range(1, 7):
            model.partial_fit(X[i : i + 1], y[i : i + 1])
        assert len(model._stream.age) == kept and model.n_samples_seen_ == 7


@each
def test_rows_of_weight_zero_may_push_all_others_of_a_call_out(estimator):
    """The newest one that counts then stays."""
    X, y = make_data(N)
    for forgetting in (5, 1e-3):
        model = clone(estimator).set_params(forgetting=forgetting).partial_fit(X[:20], y[:20])
        model.partial_fit(X[20:], y[20:], sample_weight=0.5 * (np.arange(N - 20) < 10))
        counting = model._stream.weight > 0.0
        assert_array_equal(model._stream.columns[0][counting], X[29:30])
        assert model.n_samples_seen_ == 30 and np.isfinite(model.predict(X)).all()


@each
def test_forgetting_nothing_is_the_default(estimator):
    X, y = make_data(N)
    one = stream(clone(estimator).set_params(forgetting=1), STEPS[0], X, y)
    assert_same(one, stream(estimator, STEPS[0], X, y), X)
    assert not hasattr(one, "_stream")


@each
def test_a_call_that_fails_changes_nothing(estimator):
    X, y = make_data(N)
    Y = np.column_stack([y, -y])
    model = stream(clone(estimator).set_params(forgetting=10), [20, 30], X, Y)
    before = pickle.dumps(vars(model))
    Y[30:, 1] = np.nan
    with pytest.raises(ValueError, match="Output 1 of y"):
        model.partial_fit(X[30:], Y[30:])
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[30:], Y[30:], sample_weight=-1.0)
    assert pickle.dumps(vars(model)) == before


@each
def test_a_stream_goes_on_after_a_pickle(estimator):
    X, y = make_data(N)
    model = stream(clone(estimator).set_params(forgetting=WINDOW), [20, 40], X, y)
    other = pickle.loads(pickle.dumps(model))
    assert_same(other.partial_fit(X[40:], y[40:]), model.partial_fit(X[40:], y[40:]), X)


@each
def test_forgetting_has_to_be_known_before_rows_are(estimator):
    """And where it is given up, the model goes on from what it knows."""
    X, y = make_data(N)
    model = clone(estimator).fit(X[:30], y[:30])
    with pytest.raises(ValueError, match="forgetting was 1 before"):
        model.set_params(forgetting=WINDOW).partial_fit(X[30:], y[30:])
    model.fit(X[:30], y[:30]).partial_fit(X[30:40], y[30:40])
    model.set_params(forgetting=1).partial_fit(X[40:], y[40:])
    assert model.n_samples_seen_ == N and not hasattr(model, "_stream")


@each
def test_a_warm_start_goes_on_from_the_call_before(estimator):
    X, y = make_data(N)
    settings = {"forgetting": WINDOW, "warm_start": True}
    model = stream(clone(estimator).set_params(**settings), [40, 54], X, y)
    expected = clone(estimator).set_params(warm_start=True).fit(X[15:40], y[15:40])
    assert_same(model, expected.fit(X[-WINDOW:], y[-WINDOW:]), X)


@each
def test_few_rows_are_no_warm_start_of_a_stream(estimator):
    """Their units and inducing inputs would stay for good."""
    X, y = make_data(N)
    settings = {"forgetting": WINDOW, "warm_start": True}
    model = stream(clone(estimator).set_params(**settings), [4, 54], X, y)
    assert_same(model, clone(estimator).fit(X[-WINDOW:], y[-WINDOW:]), X)


@each
def test_rows_of_dask_are_not_forgotten(estimator):
    da = pytest.importorskip("dask.array")
    X, y = make_data(N)
    model = clone(estimator).set_params(forgetting=WINDOW)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(TypeError, match="forgetting|solver"):
            method(da.from_array(X), da.from_array(y))


@pytest.mark.parametrize("forgetting", [SHARE, WINDOW])
@pytest.mark.parametrize("estimator", [e for e in FIRST if isinstance(e, LeavesOut)], ids=repr)
@pytest.mark.in_turn("forgetting")
@pytest.mark.every_nth("estimator", 3)
def test_rows_that_count_are_left_out(estimator, forgetting):
    X, y = make_data(N)
    model = stream(clone(estimator).set_params(forgetting=forgetting), STEPS[0], X, y)
    weight = weigh(forgetting)
    expected = clone(estimator).fit(X, y, sample_weight=weight)
    for one, other in zip(
        model.loo_predict(X, y, weight), expected.loo_predict(X, y, weight), strict=True
    ):
        assert_array_equal(one, other)
    with pytest.raises(ValueError, match="rows"):
        model.loo_predict(X, y)


SETTINGS = {
    "VBPITCRegressor": {"n_inducing": 30, "max_iter": 20},
    "VBPICRegressor": {"max_iter": 20},
}


@pytest.mark.thorough
@pytest.mark.parametrize("cls", CLASSES)
def test_an_abrupt_change_is_forgotten(cls, rng):
    """After as many rows as are remembered, the error is that of a fit to the new rows."""
    X = rng.uniform(-2.0, 2.0, (160, 1))
    y = np.where(np.arange(160) < 80, np.sin(3.0 * X[:, 0]), 2.0 - X[:, 0] ** 2)
    y = y + 0.1 * rng.standard_normal(160)
    T = rng.uniform(-2.0, 2.0, (200, 1))

    def error(model):
        return np.sqrt(np.mean((model.predict(T) - 2.0 + T[:, 0] ** 2) ** 2))

    make = cls(random_state=0, **SETTINGS.get(cls.__name__, {}))
    fresh = error(clone(make).fit(X[80:], y[80:]))
    ends = range(40, 161, 40)
    window = stream(clone(make).set_params(forgetting=80), ends, X, y)
    assert_allclose(error(window), fresh, rtol=1e-6)
    fading = stream(clone(make).set_params(forgetting=0.95), ends, X, y)
    assert error(fading) < 5.0 * fresh
    assert error(stream(make, ends, X, y)) > 5.0 * fresh


# -- classes ---------------------------------------------------------------------------------------

KINDS = np.array(["a", "b", "c"])


@pytest.fixture
def labelled(rng):
    """Inputs, and labels of three classes, two of which change places after 20 rows."""
    X = rng.standard_normal((N, 2))
    codes = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(N), [-0.6, 0.6])
    codes[:20] = 2 - codes[:20]
    return X, KINDS[codes]


def assert_same_classes(model, expected, X):
    one, other = (m.predict_proba(X[::9]) for m in (model, expected))  # some need a search each
    assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("classifier", LABELLING, ids=repr)
@pytest.mark.parametrize("forgetting", [SHARE, WINDOW])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.in_turn("known", "forgetting")
@pytest.mark.every_nth("classifier", 4)
def test_a_stream_of_labels_is_a_fit_to_rows_by_their_age(
    classifier, known, forgetting, labelled, rng
):
    (X, y), given = labelled, {}
    if known:
        given["sample_weight"] = draw_metadata(rng)["sample_weight"]
        if "X_var" in inspect.signature(classifier.fit).parameters:
            given["X_var"] = rng.uniform(0.0, 0.3, X.shape)
    model = clone(classifier).set_params(forgetting=forgetting)
    model = stream(model, [18, 40, 54], X, y, KINDS, **given)
    seen = given.pop("sample_weight", np.ones(N))
    weight = weigh(forgetting) * seen
    counts = weight > 0.0  # a fit without the others, not with zeros
    given = {name: values[counts] for name, values in given.items()} | {"classes": KINDS}
    expected = clone(classifier).partial_fit(
        X[counts], y[counts], sample_weight=weight[counts], **given
    )
    assert_same_classes(model, expected, X)
    assert model.n_samples_seen_ == np.count_nonzero(seen) > expected.n_samples_seen_


@each_classifier
def test_a_class_may_be_forgotten(classifier, labelled):
    """It is one of the classes all the same, and may come again."""
    X, y = labelled
    order = np.argsort(y, kind="stable")  # all of "a" come first, all of "c" last
    X, y = X[order], y[order]
    model = clone(classifier).set_params(forgetting=int(np.sum(y == "c")))
    model = stream(model, [30, N], X, y, KINDS)
    p = model.predict_proba(X)
    assert list(model.classes_) == list(KINDS) and np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.all(p[:, 2] > p[:, 0])
    assert model.partial_fit(X[:5], y[:5]).predict_proba(X[:1]).shape == (1, 3)


@each_classifier
def test_labels_of_a_fit_count_alike_and_then_fade(classifier, labelled):
    X, y = labelled
    model = clone(classifier).set_params(forgetting=SHARE).fit(X[:30], y[:30])
    assert_same_classes(model, clone(classifier).fit(X[:30], y[:30]), X)
    model.partial_fit(X[30:], y[30:])
    age = np.minimum(np.arange(N - 1.0, -1.0, -1.0), N - 30.0)
    age[30:] = np.arange(N - 31.0, -1.0, -1.0)
    assert_same_classes(model, clone(classifier).fit(X, y, sample_weight=SHARE**age), X)


@each_classifier
def test_a_call_with_labels_that_fails_changes_nothing(classifier, labelled):
    X, y = labelled
    model = stream(clone(classifier).set_params(forgetting=10), [20, 30], X, y, KINDS)
    before = pickle.dumps(vars(model))
    for wrong in (dict(y=np.full(N, "d")), dict(y=y, sample_weight=-1.0)):
        with pytest.raises(ValueError, match="labels|class|sample_weight"):
            model.partial_fit(X, **wrong)
    assert pickle.dumps(vars(model)) == before
    other = pickle.loads(before)
    assert_same_classes(model.partial_fit(X[30:], y[30:]), clone(model).fit(X[-10:], y[-10:]), X)
    assert other["n_samples_seen_"] == 30


@each_classifier
@pytest.mark.thorough
def test_labels_that_nothing_is_forgotten_of(classifier, labelled):
    X, y = labelled
    one = stream(clone(classifier).set_params(forgetting=1), [30, N], X, y, KINDS)
    assert_same_classes(one, stream(classifier, [30, N], X, y, KINDS), X)
    assert not hasattr(one, "_stream") and one.n_samples_seen_ == N
    with pytest.raises(ValueError, match="forgetting was 1 before"):
        one.set_params(forgetting=WINDOW).partial_fit(X, y)
