"""The classifier as a user sees it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp.gp import VBGPClassifier
from skvbgp.gp.classes._few_places import FewPlacesSearch
from skvbgp.gp.classes._probit_process import ProbitProcess
from skvbgp.gp.classes._process import ClassProcess
from skvbgp.gp.classes._shares import Combination, weigh_by_models
from skvbgp.gp.classes._start import make_class_kernels, start_class_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels import RBF, Constant, Matern
from tests.gp.cases import make_classes, make_classes_apart
from tests.gp.cases import small_classifier as small
from tests.gp.searches import make_class_search

FIXED = {"learn_hyperparameters": False}


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"n_neighbors": 30, "max_iter": 8}])
@pytest.mark.in_turn("options")
def test_defaults_learn_curved_borders(options):
    X, y = make_classes(400)
    model = VBGPClassifier(**options, random_state=0).fit(X[:150], y[:150])
    p = model.predict_proba(X[150:])
    linear = LogisticRegression().fit(X[:150], y[:150])
    assert log_loss(y[150:], p) < 0.5 * log_loss(y[150:], linear.predict_proba(X[150:]))
    assert abs(log_loss(y[150:], p) + model.log_predictive_probability_) < 0.1
    assert model.kernels_[0][0] in model.summary()
    assert_allclose(model.kernel_posterior_.sum(), 1.0)


@pytest.mark.slow
def test_wine_is_better_than_by_logistic_regression():
    X, y = load_wine(return_X_y=True)
    train, test = np.arange(178) % 3 > 0, np.arange(178) % 3 == 0
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[train], y[train])
    model = VBGPClassifier(random_state=0).fit(X[train], y[train])
    losses = [log_loss(y[test], m.predict_proba(X[test])) for m in (model, linear)]
    assert losses[0] < losses[1]


@pytest.mark.thorough
def test_a_class_that_is_near_no_row_is_told_apart():
    """A wide class around a narrow one, of which nearly all near rows are, those of both."""
    rng = np.random.default_rng(0)
    y = np.arange(1_000) % 2
    X = rng.standard_normal((1_000, 12)) * np.where(y, 1.0, 2.0)[:, None] + y[:, None] / 4.5**0.5
    model = small(RBF(2.0), n_neighbors=60, n_inducing=None, max_iter=None)
    model.fit(X[:800], y[:800])
    assert log_loss(y[800:], model.predict_proba(X[800:])) < 0.3


@pytest.mark.parametrize("n_neighbors", ["auto", 10])
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("n_neighbors", 2)
def test_far_from_all_rows_the_frequencies_are_left(n_neighbors):
    X, y = make_classes(30)
    y = np.where(np.arange(30) % 3, y, 0)
    model = small(n_neighbors=n_neighbors).fit(X, y)
    far = model.predict_proba([[1e4, 0.0], [0.0, -1e5]])
    frequencies = (np.bincount(y) + 1 / 3) / 31
    assert_allclose(far, [frequencies, frequencies])
    assert_allclose(model.class_prior_, frequencies)


def make_slopes(n):
    """Two classes: waves in one input, on slopes in three."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, 4))
    height = 2.0 * np.sin(4.0 * X[:, 0]) + 0.7 * X[:, 1:].sum(axis=1)
    return X, height + 0.2 * rng.standard_normal(n) > 0.0


@pytest.mark.thorough
def test_few_rows_are_also_explained_by_lines(monkeypatch):
    """Which end: far from all rows the frequencies are left, as by other kernels."""
    X, y = make_slopes(1_120)
    model = VBGPClassifier(random_state=0).fit(X[:120], y[:120])
    names = [name for name, _ in model.kernels_]
    assert names[-1].endswith(", by input + LIN")
    assert model.kernel_posterior_[-1] > 0.5
    assert_allclose(model.predict_proba(1e4 * X[:3]), [model.class_prior_] * 3)
    monkeypatch.setattr(FewPlacesSearch, "_try_lines", lambda *_: None)
    others = VBGPClassifier(random_state=0).fit(X[:120], y[:120])
    losses = [log_loss(y[120:], one.predict_proba(X[120:])) for one in (model, others)]
    assert losses[0] < 0.9 * losses[1]


@pytest.mark.usefixtures("quick_searches")
def test_two_classes_and_their_log_odds():
    X, y = make_classes(60, K=2)
    model = small().fit(X, np.array(["no", "yes"])[y])
    p, scores = model.predict_proba(X), model.decision_function(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_allclose(scores, np.log(p[:, 1] / p[:, 0]))
    assert_array_equal(model.predict(X) == "yes", scores > 0.0)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("n_neighbors", ["auto", 7])
@pytest.mark.every_nth("n_neighbors", 2)
def test_a_row_alone_and_on_workers(n_neighbors):
    X, y = make_classes(60)
    model = small([Matern(2.0), RBF(2.0)], n_neighbors=n_neighbors).fit(X, y)
    p = model.predict_proba(X + 0.1)
    rows = np.vstack([model.predict_proba(x[None] + 0.1) for x in X[:5]])
    assert_allclose(rows, p[:5], rtol=1e-9)
    assert_array_equal(model.set_params(n_jobs=1).predict_proba(X + 0.1), p)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X + 0.1), p)


@pytest.mark.parametrize("n_neighbors", ["auto", 7])
@pytest.mark.every_nth("n_neighbors", 2)
def test_stream_of_any_order_is_one_fit(rng, n_neighbors):
    X, y = make_classes(60)
    weights = rng.uniform(0.5, 2.0, 60)
    options = {"n_neighbors": n_neighbors, "class_weight": "balanced", **FIXED}
    whole = small(**options).fit(X, y, weights)
    stream = clone(whole)
    for chunk in np.split(rng.permutation(60), [1, 20, 21, 50]):
        stream.partial_fit(X[chunk], y[chunk], classes=[0, 1, 2], sample_weight=weights[chunk])
    assert_allclose(stream.predict_proba(X + 0.1), whole.predict_proba(X + 0.1), rtol=1e-8)
    assert stream.n_samples_seen_ == 60


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.every_nth("class_weight", 2)
def test_a_few_more_rows_extend_what_predictions_have_made_of_the_others(monkeypatch, class_weight):
    """Regressions and probit likelihoods, also where the weights of the classes change."""
    X, y = make_classes(80)
    y = np.where(np.random.default_rng(0).uniform(size=80) < 0.2, y == 0, y > 0)
    model = small(max_iter=5, class_weight=class_weight).fit(X[:70], y[:70])
    kinds = {type(process) for process in model._state.found.processes}
    assert kinds == {ClassProcess, ProbitProcess}
    model.predict_proba(X)
    calls = []
    for kind in kinds:
        factorise = kind.factorise
        monkeypatch.setattr(
            kind, "factorise", lambda *args, do=factorise: calls.append(1) or do(*args)
        )
    for start, stop in [(70, 71), (71, 72), (72, 74)]:
        model.partial_fit(X[start:stop], y[start:stop])
        if stop == 71:  # nothing is asked
            continue
        calls.clear()
        found = model.predict_proba(X + 0.1)
        assert not calls
        anew = pickle.loads(pickle.dumps(model)).predict_proba(X + 0.1)
        assert_allclose(found, anew, rtol=1e-8)
        assert calls
    calls.clear()
    model.partial_fit(X[:15] + 0.01, y[:15]).predict_proba(X)
    assert calls  # more than one in eight


@pytest.mark.thorough
def test_new_rows_are_known_at_once_and_hyperparameters_follow():
    X, y = make_classes(140)
    model = small(n_neighbors=20).fit(X[:60], y[:60])
    kernels, k = model.kernels_, int(np.argmin(model.predict_proba(X[60:61])))
    before = model.predict_proba(X[60:61])[0, k]
    model.partial_fit(X[60:61], [k])
    assert model.predict_proba(X[60:61])[0, k] > before
    assert model.kernels_ == kernels
    model.partial_fit(X[61:], y[61:])
    assert model.kernels_ != kernels
    whole = small(n_neighbors=20).fit(X, np.where(np.arange(140) == 60, k, y))
    assert_array_equal(model.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize("has_gaps", [False, True])
def test_votes_of_a_known_place_are_its_own(rng, has_gaps):
    """It is no new one, by which units, neighbours and learning again would be decided."""
    X, y = make_classes(60)
    if has_gaps:
        X[::7, 1] = np.nan
    again = rng.permutation(60)[:40]
    model = small(**FIXED).fit(X, y).partial_fit(X[again], y[::-1][again])
    rows = np.append(np.arange(60), again)
    expected = small(**FIXED).fit(X[rows], np.append(y, y[::-1][again]))
    assert len(model._state.rows) == len(expected._state.rows) == 60
    assert_allclose(model.predict_proba(X + 0.1), expected.predict_proba(X + 0.1), rtol=1e-8)


def test_hyperparameters_are_learned_again_when_rows_have_doubled_wherever_they_are():
    X, y = make_classes(60)
    model, found = small(max_iter=1).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3)), []
    for _ in range(3):
        found.append(model._state.found)
        model.partial_fit(X, y)
    assert found[0] is found[2] is not model._state.found
    assert len(model._state.rows) == 60 and model.n_samples_seen_ == 360


def test_many_rows_at_few_places_do_not_learn_again_with_every_call(rng):
    X = rng.integers(0, 2, (80, 3)) * 1.0
    y = (X.sum(axis=1) + rng.standard_normal(80) > 1.5).astype(int)
    model = small(max_iter=2).partial_fit(X[:70], y[:70], classes=[0, 1])
    found = model._state.found
    for i in range(70, 80):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert len(model._state.rows) == 8 and model._state.found is found


@pytest.mark.usefixtures("quick_searches")
def test_a_class_that_comes_later_is_learned():
    X, y = make_classes(80)
    first = np.flatnonzero(y < 2)[:40]
    model = small(max_iter=1).partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert model.predict_proba(X).max(axis=0)[2] < 0.1
    n_iter, place = model.n_iter_, np.flatnonzero(y == 2)[:1]
    model.partial_fit(X[place], y[place])
    assert n_iter == model.n_iter_
    expected = small(max_iter=1).fit(X[[*first, *place]], y[[*first, *place]])
    assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize(
    ("forgetting", "due", "n_neighbors"),
    [(40, 10, "auto"), pytest.param(0.95, 15, 7, marks=pytest.mark.thorough)],
)
def test_hyperparameters_follow_when_a_quarter_of_what_counts_is_new(forgetting, due, n_neighbors):
    """Of 40 rows, or of as many as are remembered, 58; rows are known and forgotten at once."""
    X, y = make_classes(80)
    model = small(max_iter=1, n_neighbors=n_neighbors, forgetting=forgetting)
    model.partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    kernels, at_once, last = model.kernels_, clone(model), 60 + due
    at_once.partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    for i in range(60, last - 1):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert model.kernels_ == kernels and model.n_samples_seen_ == last - 1
    at_once.partial_fit(X[60 : last - 1], y[60 : last - 1])
    assert_allclose(model.predict_proba(X), at_once.predict_proba(X), rtol=1e-9)
    if forgetting == 40:
        known = np.sort(model._state.rows.X, axis=0)
        assert_array_equal(known, np.sort(X[last - 41 : last - 1], axis=0))
    model.partial_fit(X[last - 1 : last], y[last - 1 : last])
    age = np.arange(last - 1.0, -1.0, -1.0)
    weight = (age < 40) * 1.0 if forgetting == 40 else forgetting**age
    counts = weight >= 0.01
    whole = small(max_iter=1, n_neighbors=n_neighbors)
    whole.fit(X[:last][counts], y[:last][counts], weight[counts])
    assert model.kernels_ != kernels
    assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("quick_searches")
def test_every_call_learns_again_as_long_as_fewer_than_32_rows_were_known():
    X, y = make_classes(36)
    model = small(max_iter=1).partial_fit(X[:30], y[:30], classes=np.unique(y))
    trained = [model.partial_fit(X[[i]], y[[i]])._state.n_trained for i in range(30, 36)]
    assert trained == [31, 32, 32, 32, 32, 32]


@pytest.mark.usefixtures("quick_searches")
def test_what_else_has_a_stream_that_forgets_learn_again():
    """A class that had no row in the window; hyperparameters that are not learned; a warm start."""
    X, y = make_classes(80)
    first = np.flatnonzero(y < 2)[:30]
    model = small(forgetting=20, max_iter=1).partial_fit(X[first], y[first], classes=[0, 1, 2])
    place = np.flatnonzero(y == 2)[:1]
    newest = [*first[-19:], *place]
    expected = small(max_iter=1).fit(X[newest], y[newest])
    model.partial_fit(X[place], y[place])
    assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
    fixed = small(forgetting=20, **FIXED).fit(X[:40], y[:40])
    fixed.partial_fit(X[40:41], y[40:41])
    whole = small(**FIXED).fit(X[21:41], y[21:41])
    assert_allclose(fixed.predict_proba(X), whole.predict_proba(X), rtol=1e-6)
    warm = small(forgetting=20, warm_start=True, max_iter=1).fit(X[:40], y[:40])
    warm.partial_fit(X[40:50], y[40:50])
    again = small(warm_start=True, max_iter=1).fit(X[:40], y[:40]).fit(X[30:50], y[30:50])
    assert_allclose(warm.predict_proba(X), again.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", ["auto", 8])
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("n_neighbors", 2)
def test_weights_are_repetitions(rng, n_neighbors):
    X, y = make_classes(24)
    times = rng.integers(0, 4, 24)
    weighted = small(n_neighbors=n_neighbors).fit(X, y, sample_weight=times)
    repeated = small(n_neighbors=n_neighbors).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)


def test_shares_of_classes_where_rows_are_equal():
    """Two inputs of two values each: a place has the shares of its many rows."""
    places = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    counts = np.array([21, 83, 117, 181])  # of 200 rows each
    X = np.repeat(places, 200, axis=0)
    y = (np.arange(200) < counts[:, None]).ravel()
    p = small().fit(X, y).predict_proba(places)[:, 1]
    assert_allclose(p, counts / 200, atol=0.03)


def test_copies_tell_no_labels(rng):
    """Labels with much noise are not believed more where rows count as up to three."""
    X = rng.standard_normal((150, 2))
    y = (X[:, 0] + 1.5 * rng.standard_normal(150) > 0.0).astype(int)
    p = small().fit(X, y, rng.integers(1, 4, 150)).predict_proba(X)[:, 1]
    assert 0.02 < p.min()
    assert p.max() < 0.98


@pytest.mark.usefixtures("quick_searches")
def test_a_heavier_class_is_believed_more(rng):
    X, y = make_classes(60)
    y = rng.permutation(y)
    p = small().fit(X, y).predict_proba(X)[:, 1]
    heavy = small(class_weight={1: 5.0}).fit(X, y).predict_proba(X)[:, 1]
    weighted = small().fit(X, y, np.where(y == 1, 5.0, 1.0)).predict_proba(X)[:, 1]
    means = [p.mean(), heavy.mean(), weighted.mean()]
    assert_allclose(means, [1 / 3, 5 / 7, 5 / 7], atol=0.05)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("options", [{}, {"n_neighbors": 12}, FIXED])
@pytest.mark.every_nth("options", 3)
def test_weights_of_classes_multiply_odds(options, rng):
    """They are no rows: what is learned of the functions is the same."""
    X, y = make_classes(60)
    y = np.where(rng.uniform(size=60) < 0.2, 0, y)
    weights = rng.integers(1, 3, 60)
    options, known = {"max_iter": 2, **options}, (X[:50], y[:50], weights[:50])
    plain = small(**options).fit(*known)
    heavy = small(class_weight={1: 5.0, 2: 0.1}, **options).fit(*known)
    even = small(class_weight="balanced", **options).fit(*known)
    for known in (50, 60):
        totals = np.bincount(y[:known], weights[:known])
        for model, factors in [(heavy, [1.0, 5.0, 0.1]), (even, 1.0 / totals)]:
            expected = plain.predict_proba(X + 0.1) * factors
            expected /= expected.sum(axis=1, keepdims=True)
            assert_allclose(model.predict_proba(X + 0.1), expected, rtol=1e-10)
            far = model.predict_proba(np.full((1, 2), 1e5))[0]
            assert_allclose(model.class_prior_, far, rtol=1e-6)
            assert model.kernels_ == plain.kernels_
        if known == 50:
            for model in (plain, heavy, even):
                model.partial_fit(X[50:], y[50:], sample_weight=weights[50:])


@pytest.mark.parametrize("bad", [-1.0, np.nan, 1e-12, 1e12])
def test_bad_weights_are_refused(bad):
    X, y = make_classes(20)
    weights = np.ones(20)
    weights[3] = bad
    with pytest.raises(ValueError, match="[Ww]eight"):
        small().fit(X, y, weights)
    with pytest.raises(ValueError, match="zero"):
        small().fit(X, y, np.zeros(20))


def test_a_call_that_fails_leaves_the_estimator_as_it_was():
    X, y = make_classes(40)
    model = small(n_neighbors=10).fit(X, y)
    before = model.predict_proba(X)
    for bad in (np.inf, 1e300):
        with pytest.raises(ValueError):
            model.partial_fit(np.full((1, 2), bad), [0])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X[:1], [7])
    assert_array_equal(model.predict_proba(X), before)


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.in_turn("n_neighbors")
def test_scale_and_origin_of_the_data_do_not_matter(n_neighbors):
    X, y = make_classes(60)
    options = {"n_neighbors": n_neighbors, "max_iter": 1, "random_state": 0}
    p = VBGPClassifier(**options).fit(X, y).predict_proba(X + 0.1)
    moved = VBGPClassifier(**options).fit(1e3 * X - 7.0, y).predict_proba(1e3 * (X + 0.1) - 7.0)
    assert_allclose(moved, p, rtol=1e-4)


@pytest.mark.slow
def test_inputs_that_do_not_matter_get_long_length_scales(rng):
    X, y = make_classes(200)
    X = np.column_stack([X, rng.standard_normal((200, 3))])
    model = VBGPClassifier(random_state=0).fit(X, y)
    name, kernel = model.kernels_[0]
    assert "by input" in name
    scale = kernel.length_scale / X.std(axis=0)
    assert min(scale[2:]) > 3.0 * max(scale[:2])


@pytest.mark.thorough
def test_warm_start_goes_on_from_the_kernels_found():
    X, y = make_classes(60)
    model = small("auto", warm_start=True, max_iter=10).fit(X, y)
    names = [name for name, _ in model.kernels_]
    score = model.log_predictive_probability_
    model.fit(X, y)
    assert {name for name, _ in model.kernels_} <= set(names)
    assert model.log_predictive_probability_ > score - 0.01
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(X[:, :1], y)
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(X, y > 0)


@pytest.mark.thorough
def test_a_warm_start_has_a_pass_for_every_kernel_found():
    """Also where the parameters speak of fewer; and one for a likelihood of labels."""
    X, y = make_classes_apart(60)
    model = small("auto", warm_start=True, max_iter=2).fit(X, y)
    n_kernels = len(model.kernels_)
    assert n_kernels > 1
    assert model.set_params(kernel=Matern(nu=1.5)).fit(X, y).n_iter_ == n_kernels + 1


@pytest.mark.usefixtures("quick_searches", "few_kernels")
@pytest.mark.parametrize(
    "kernels", [("auto", Matern(2.0, nu=1.5)), (Matern(2.0, nu=1.5), "auto")], ids=["auto", "given"]
)
@pytest.mark.every_nth("kernels", 2)
def test_kernels_of_the_fit_before_keep_their_units(kernels):
    """Those that were searched for are standardised, whatever `kernel` is by then."""
    X, y = make_classes(30)
    X *= [1.0, 100.0]
    model = small(kernels[0], warm_start=True, max_iter=1).fit(X[:22], y[:22])
    other = pickle.loads(pickle.dumps(model))
    other.set_params(kernel=kernels[1])
    for one in (model, other):
        one.set_params(**FIXED).fit(X[:22], y[:22]).partial_fit(X[22:], y[22:])
    assert repr(other.kernels_) == repr(model.kernels_)
    assert_array_equal(other.predict_proba(X), model.predict_proba(X))


@pytest.mark.usefixtures("quick_searches", "few_kernels")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_neighbors", ["auto", 8])
@pytest.mark.parametrize(
    "kind", ["duplicates", "constant column", "one place", "grid", "rare class", "two rows"]
)
@pytest.mark.in_turn("n_neighbors")
@pytest.mark.every_nth("kind", 3)
def test_degenerate_data_get_an_answer(kind, n_neighbors):
    X, y = make_classes(40)
    if kind == "duplicates":
        X, y = np.repeat(X[:8], 5, axis=0), y
    elif kind == "constant column":
        X[:, 1] = 1.0
    elif kind == "one place":
        X[:] = 1.0
    elif kind == "grid":
        X = np.round(X)
    elif kind == "rare class":
        y = (np.arange(40) == 7).astype(int)
    else:
        X, y = X[:2], np.array([0, 1])
    model = VBGPClassifier(n_neighbors=n_neighbors, max_iter=1, random_state=0).fit(X, y)
    p = model.predict_proba(np.vstack([X, X + 100.0]))
    assert np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1.0)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("k, stop_after", [(30, 1), (30, 7), (30, 10), (12, 1), (12, 9)])
@pytest.mark.every_nth("k", 2)
def test_a_callback_may_stop(k, stop_after):
    """A search of few places, or of many, after any of its trials."""
    X, y = make_classes(30)
    calls = []

    def end_pass(make):
        calls.append(make())
        return len(calls) == stop_after

    starts = [(name, start_class_process(kernel, 2)) for name, kernel in make_class_kernels(2)]
    votes = Votes.of(X, np.eye(3)[y])
    search = make_class_search(votes, 2, k, end_pass=end_pass)
    found = search.run(starts, grows=True)
    assert len(calls) == stop_after
    assert np.isfinite(found.score)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("k", [20, 60])
@pytest.mark.every_nth("k", 2)
def test_what_callbacks_ask_for_changes_no_result(k):
    X, y = make_classes(60)
    starts, votes = [("a", start_class_process(Matern(2.0).bind(2), 2))], Votes.of(X, np.eye(3)[y])

    def search(end_pass):
        known = make_class_search(votes, 2, k, max_iter=2, end_pass=end_pass)
        return known.run(starts, grows=False)

    asked, silent = search(lambda make: make() is None), search(lambda make: False)
    assert asked.score == silent.score
    assert asked.processes == silent.processes


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize(("k", "most"), [(90, 10), pytest.param(20, 3, marks=pytest.mark.thorough)])
def test_kernels_of_both_kinds_may_share(k, most):
    """Of few rows all that were tried; from neighbours those by input and the best other one.

    What is near is measured as it was when they were judged, whichever of them are kept.
    """
    X, y = make_classes_apart(90)
    starts = [(name, start_class_process(kernel, 2)) for name, kernel in make_class_kernels(2)]
    mixed = []

    def watch(parts, counts, d):
        mixed.append((parts, mix(parts, counts, d)))
        return mixed[-1][1]

    mix = Combination.of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Combination, "of", watch)
        votes = Votes.of(X, np.eye(3)[y])
        found = make_class_search(votes, 2, k, max_iter=2).run(starts, grows=True)
    (parts,) = (parts for parts, mixture in mixed if mixture.found is found)
    names = [part.name for part in parts]
    assert len(names) == most
    assert sum(name.endswith("by input") for name in names) == 2
    assert set(found.names) <= set(names)
    assert_array_equal(found.weights, weigh_by_models([part.trained for part in parts], 2))
    assert abs(found.weights[0] - found.weights[1]) > 1e-3
    assert_allclose(found.belief.sum(), 1.0)


@pytest.mark.thorough
def test_many_kernels_of_equal_worth_share():
    X, y = make_classes(40, K=2)
    model = small([(f"k{i}", Matern(1.0)) for i in range(30)], max_iter=1).fit(X, y)
    assert len(model.kernels_) > 1
    assert_allclose(model.kernel_posterior_.sum(), 1.0)


def test_rows_are_decided_some_at_a_time(monkeypatch):
    X, y = make_classes(60)
    model = small(**FIXED).fit(X, y)
    expected = model.predict_proba(X)
    monkeypatch.setattr("skvbgp.gp.classes._posterior._DECIDED_ROWS", 7)
    assert_allclose(model.predict_proba(X), expected, rtol=1e-12)


def test_few_rows_average_over_draws():
    """Of every kernel, by what they say of rows that are left out."""
    X, y = make_classes_apart(60)
    kernels = [("good", Matern(2.0)), ("bad", RBF(2e-2, length_scale_bounds=(1e-2, 3e-2)))]
    model = small(kernels, max_iter=20).fit(X, y)
    found = model._state.found
    assert model.kernels_[0][0] == "good"
    assert model.kernel_posterior_[0] > 0.9
    assert len(found.processes) > 3
    assert_allclose(found.belief.sum(), 1.0)
    again = small(kernels, max_iter=20, random_state=1).fit(X, y)
    assert again._state.found.processes != found.processes
    assert again.kernels_ == model.kernels_  # where training ended, around which they are drawn
    kept = model.set_params(warm_start=True, **FIXED).fit(X, y)
    assert kept.kernels_ == again.kernels_


@pytest.mark.parametrize("kernel", [[], "grammar", 3.0, Constant])
def test_bad_kernels_are_refused(kernel):
    with pytest.raises((TypeError, ValueError), match="kernel"):
        VBGPClassifier(kernel).fit(*make_classes(10))


@pytest.mark.parametrize(("n", "total"), [(20, 46), (30, 66)])
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("n", 2)
def test_weights_are_repetitions_in_a_stream(rng, n, total):
    """Also where it is asked whether rows are few, or have doubled."""
    X, y = make_classes(n + 3)
    one, other = (VBGPClassifier(Matern(2.0), random_state=0) for _ in range(2))
    for rows in (np.arange(n), np.arange(n, n + 3)):
        copies = np.repeat(rows, 2)
        one.partial_fit(X[rows], y[rows], classes=np.unique(y), sample_weight=np.full(len(rows), 2))
        other.partial_fit(X[copies], y[copies], classes=np.unique(y))
    assert other.n_samples_seen_ == total
    assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)
