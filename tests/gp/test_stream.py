"""Streams whose rows fade."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF, White
from tests.functions import check_importances

pytestmark = pytest.mark.usefixtures("quick_searches")


def make_model(**parameters):
    settings = {"kernel": RBF(), "learn_hyperparameters": False, "random_state": 0}
    return VBGPRegressor(**(settings | parameters))


def stream(model, X, y, step):
    for i in range(0, len(X), step):
        model.partial_fit(X[i : i + step], y[i : i + step])
    return model


@pytest.fixture
def data(rng):
    X = rng.uniform(-2.0, 2.0, (120, 1))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(120), np.linspace(-2.0, 2.0, 9)[:, None]


@pytest.mark.parametrize("step", [1, 30, 120])
@pytest.mark.every_nth("step", 3)
def test_rows_count_by_their_age(data, step):
    X, y, T = data
    if step == 1:
        X, y = X[:40], y[:40]
    weight = 0.98 ** np.arange(len(y) - 1.0, -1.0, -1.0)
    expected = make_model().fit(X, y, sample_weight=weight)
    model = stream(make_model(forgetting=0.98), X, y, step)
    assert_allclose(model.predict(T, True), expected.predict(T, True), rtol=1e-6)


def test_old_rows_are_forgotten(data):
    X, y, T = data
    model = stream(make_model(forgetting=0.9), X, y, 20)
    assert len(model._state.rows) == 44  # 0.9 ** 44 is less than a hundredth
    assert model.n_samples_seen_ == 120
    mean, _ = model.loo_predict()
    assert_array_equal(np.isnan(mean), np.arange(120) < 76)


@pytest.mark.parametrize("step", [1, 30, 120])
@pytest.mark.every_nth("step", 3)
def test_a_number_is_that_of_the_newest_rows(data, step):
    X, y, T = data
    if step == 1:
        X, y = X[:60], y[:60]
    model = stream(make_model(forgetting=50), X, y, step)
    expected = make_model().fit(X[-50:], y[-50:])
    assert_allclose(model.predict(T, True), expected.predict(T, True), rtol=1e-6)
    assert len(model._state.rows) == 50
    white = stream(make_model(kernel=RBF() + 0.1 * White(), forgetting=50), X, y, step)
    assert len(white._state.rows) == 50
    assert white.n_samples_seen_ == model.n_samples_seen_ == len(y)


@pytest.mark.parametrize("forgetting", [20, 0.8])
@pytest.mark.every_nth("forgetting", 2)
def test_what_is_kept_of_an_endless_stream_is_bounded(data, forgetting):
    """Rows that are forgotten are counted, no more."""
    X, y, T = data
    model = make_model(forgetting=forgetting)
    kept = []
    for start in range(0, 120, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10])
        rows = model._state.rows
        kept.append(len(rows) if rows.origin is None else len(rows.origin))
    assert max(kept[3:]) == kept[3] <= 30
    mean, _ = model.loo_predict()
    assert_array_equal(np.isfinite(mean), np.arange(120) >= 120 - len(model._state.rows))
    later = pickle.loads(pickle.dumps(model)).partial_fit(X[:7], y[:7])
    again = model.partial_fit(X[:7], y[:7])
    assert_allclose(later.predict(T), again.predict(T), rtol=1e-9)


@pytest.mark.parametrize("forgetting", [20, 0.8])
@pytest.mark.every_nth("forgetting", 2)
def test_what_is_kept_of_several_outputs_is_bounded(data, forgetting):
    """Numbers of the rows that each was observed in, too, also where one is not any more."""
    X, y, T = data
    Y = np.column_stack([y, np.where(np.arange(120) < 90, -y, np.nan)])
    model, kept = make_model(forgetting=forgetting), []
    for start in range(0, 120, 10):
        model.partial_fit(X[start : start + 10], Y[start : start + 10])
        kept.append([len(index) for index in model._state.index])
    assert np.max(kept[3:]) <= 30
    mean, _ = model.loo_predict()
    for j, last in enumerate([119, 89]):
        index = model._state.index[j]
        assert_array_equal(np.flatnonzero(np.isfinite(mean[:, j])), index)
        assert index[-1] == last


@pytest.mark.parametrize("step", [7, 120])
@pytest.mark.parametrize("forgetting", [20, 0.97])
@pytest.mark.every_nth("step", 2)
@pytest.mark.every_nth("forgetting", 2)
def test_copies_of_a_row_come_and_go_one_by_one(data, step, forgetting):
    """As often as it came is how much a row counts, and others are not forgotten for it."""
    X, y, T = data
    X, y, age = X.copy(), y.copy(), np.arange(119.0, -1.0, -1.0)
    X[np.arange(120) % 10 > 2], y[np.arange(120) % 10 > 2] = 0.5, 2.0
    model, lengths = make_model(forgetting=forgetting), []
    for start in range(0, 120, step):
        model.partial_fit(X[start : start + step], y[start : start + step])
        lengths.append(len(model._state.rows.origin))
    weight = (age < 20.0).astype(float) if forgetting == 20 else 0.97**age
    expected = make_model().fit(X, y, sample_weight=weight)
    assert_allclose(model.predict(T, True), expected.predict(T, True), atol=1e-5)
    assert_array_equal(np.isfinite(model.loo_predict()[0]), weight > 0.0)
    if forgetting == 20 and step == 7:
        assert max(lengths) == 20


def test_rows_of_a_long_chunk_are_followed_where_older_ones_still_count(data):
    """The first ones of the chunk are forgotten before it joins them."""
    X, y, _ = data
    weight = np.where(np.arange(65) < 5, 500.0, 1.0)
    model = make_model(forgetting=0.9).partial_fit(X[:5], y[:5], sample_weight=weight[:5])
    model.partial_fit(X[5:65], y[5:65], sample_weight=weight[5:])
    known = np.isfinite(model.loo_predict()[0])
    assert_array_equal(known, weight * 0.9 ** np.arange(64.0, -1.0, -1.0) >= 0.01)


@pytest.mark.parametrize("forgetting", [1, 60])
@pytest.mark.every_nth("forgetting", 2)
def test_copies_are_no_reason_to_learn_more_often(rng, forgetting):
    """Those of few places are merged, and later ones soon twice as many as were learned from."""
    X = rng.integers(0, 20, (200, 1)).astype(float)
    y = np.round(2.0 * np.sin(X[:, 0]) + rng.standard_normal(200))
    model = make_model(learn_hyperparameters=True, max_iter=2, forgetting=forgetting)
    trained = []
    for start in range(0, 200, 40):
        model.partial_fit(X[start : start + 40], y[start : start + 40])
        trained.append(model._state.n_seen_trained)
    assert trained == [40, 80, 80, 160, 160]


def test_weights_decide_in_relation_to_each_other_what_is_forgotten(data):
    X, y, _ = data
    model = make_model(forgetting=0.9)
    for start in range(0, 120, 20):
        rows = slice(start, start + 20)
        model.partial_fit(X[rows], y[rows], sample_weight=1e-4)
    assert len(model._state.rows) == 44  # 0.9 ** 44 is less than a hundredth


def test_copies_that_learn_come_and_go_one_by_one(data):
    """Where all rows are merged to learn from, too."""
    X, y, T = data
    X, y = np.round(X), np.round(y)
    settings = {"learn_hyperparameters": True, "max_iter": 2}
    model = stream(make_model(forgetting=20, **settings), X, y, 15)
    assert_allclose(model._state.rows.count, 20.0)


@pytest.mark.parametrize("forgetting", [20, 1e-3])
def test_rows_of_weight_zero_may_push_all_others_of_a_call_out(data, forgetting):
    """The newest one that counts then stays."""
    X, y, T = data
    model = make_model(forgetting=forgetting).partial_fit(X[:10], y[:10])
    model.partial_fit(X[10:], y[10:], sample_weight=np.arange(110) < 5)
    assert model.n_samples_seen_ == 120 and np.isfinite(model.predict(T, True)).all()
    assert_array_equal(model._state.rows.X[-1:], X[14:15])
    assert len(model._state.rows) == 1 or forgetting == 1e-3
    model.partial_fit(X[:20], y[:20])
    expected = make_model(forgetting=forgetting).partial_fit(X[:20], y[:20])
    assert_allclose(model.predict(T), expected.predict(T), rtol=1e-6)


def test_an_output_that_is_not_observed_any_more_counts_next_to_nothing(data):
    X, y, T = data
    Y = np.column_stack([y, y])
    Y[10:, 1] = np.nan
    model = stream(make_model(forgetting=1e-3), X, Y, 30)  # after 110 rows 1e-330, which is zero
    alone = stream(make_model(forgetting=1e-3), X, y, 30)
    assert_allclose(model.predict(T)[:, 0], alone.predict(T), rtol=1e-6)
    assert np.isfinite(model.predict(T, True)).all()


@pytest.mark.parametrize("forgetting", [50, 0.98])
@pytest.mark.every_nth("forgetting", 2)
def test_importances_are_those_of_rows_that_still_count(rng, forgetting):
    """Of an input that goes on, such as the time, as much as these have of it."""
    X = np.column_stack([rng.standard_normal(120), np.arange(120.0)])
    y = np.sin(X[:, 0]) + 0.01 * X[:, 1]
    options = {"learn_hyperparameters": True, "max_iter": 3, "forgetting": forgetting}
    model = make_model(kernel=RBF([1.0, 50.0]), **options).fit(X[:80], y[:80])
    model.partial_fit(X[80:], y[80:])
    weight = np.ones(50)
    if forgetting < 1:
        weight = 0.98 ** np.append(np.full(80, 40.0), np.arange(39.0, -1.0, -1.0))
    check_importances(model, X[-len(weight) :], weight)


def test_a_heavy_row_does_not_drive_out_all_others(data):
    """A weight of 150 is 150 copies."""
    X, y, T = data
    weight = np.ones(80)
    weight[40] = 150.0
    model = make_model(forgetting=0.99).partial_fit(X[:80], y[:80], sample_weight=weight)
    expected = make_model().fit(X[:80], y[:80], 0.99 ** np.arange(79.0, -1.0, -1.0) * weight)
    assert len(model._state.rows) == 80
    assert_allclose(model.predict(T, True), expected.predict(T, True), rtol=1e-6)


@pytest.mark.parametrize("forgetting", [100, 0.99])
@pytest.mark.every_nth("forgetting", 2)
def test_gaps_of_an_output_that_fades_stay_gaps(forgetting, rng):
    X = rng.standard_normal((20, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])
    X[2:6, 1], Y[2:6, 0] = np.nan, np.nan  # only the second output was observed there
    new = np.zeros((1, 2)), np.array([[1.0, np.nan]])
    model = make_model(forgetting=forgetting).partial_fit(X, Y).partial_fit(*new)
    weight = np.ones(21) if forgetting > 1 else forgetting ** np.arange(20.0, -1.0, -1.0)
    expected = make_model().fit(np.vstack([X, new[0]]), np.vstack([Y, new[1]]), weight)
    places = np.array([[0.0, np.nan], [0.3, 0.2]])
    assert_allclose(model.predict(places, True), expected.predict(places, True), rtol=1e-6)
    assert_allclose(model.loo_predict(), expected.loo_predict(), rtol=1e-6)
    model.partial_fit(X[3:5], Y[3:5])


def test_forgetting_nothing_is_the_default(data):
    X, y, T = data
    settings = {"learn_hyperparameters": True, "max_iter": 3}
    plain = stream(make_model(**settings), X, y, 40)
    one = stream(make_model(forgetting=1, **settings), X, y, 40)
    assert_array_equal(plain.predict(T), one.predict(T))


def test_a_fit_weighs_all_rows_alike(data):
    X, y, T = data
    assert_array_equal(
        make_model(forgetting=0.9).fit(X, y).predict(T), make_model().fit(X, y).predict(T)
    )


@pytest.mark.thorough
def test_an_abrupt_change_is_forgotten(rng):
    """After as many rows as are remembered, the error is that of a fit to the new rows."""
    X = rng.uniform(-2.0, 2.0, (160, 1))
    y = np.where(np.arange(160) < 80, np.sin(3.0 * X[:, 0]), 2.0 - X[:, 0] ** 2)
    y = y + 0.1 * rng.standard_normal(160)
    T = rng.uniform(-2.0, 2.0, (200, 1))
    truth = 2.0 - T[:, 0] ** 2
    settings = {"learn_hyperparameters": True, "max_iter": 5}

    def error(model):
        return np.sqrt(np.mean((model.predict(T) - truth) ** 2))

    fresh = error(make_model(**settings).fit(X[80:], y[80:]))
    sliding = error(stream(make_model(forgetting=80, **settings), X, y, 40))
    assert sliding < 1.1 * fresh
    assert error(stream(make_model(forgetting=0.95, **settings), X, y, 40)) < 3.0 * fresh
    assert error(stream(make_model(**settings), X, y, 40)) > 5.0 * fresh


@pytest.mark.parametrize(
    "n_before, memory, step", [(100, 60, 20), (100, 60, 15), (80, 80, 10), (80, 80, 20)]
)
@pytest.mark.every_nth("step", 4)
def test_rows_of_two_functions_are_not_learned_from(n_before, memory, step, rng):
    """Hyperparameters are those of the new function as soon as the old one is forgotten.

    Also where the first training had fewer rows than are known: half as many after the change are
    not enough, as the window has older ones as well.
    """
    X = rng.uniform(-2.0, 2.0, (160, 1))
    y = np.where(np.arange(160) < n_before, np.sin(3.0 * X[:, 0]), 2.0 - X[:, 0] ** 2)
    y = y + 0.1 * rng.standard_normal(160)
    settings = {"learn_hyperparameters": True, "max_iter": 5}
    fresh = make_model(**settings).fit(X[n_before:], y[n_before:])
    model = stream(make_model(forgetting=memory, **settings), X, y, step)
    assert_allclose(model.noise_variance_, fresh.noise_variance_, rtol=1e-6)
    assert_allclose(model.predict(X), fresh.predict(X), atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.every_nth("weighted", 2)
def test_a_change_within_a_chunk_is_where_it_is(weighted, rng):
    """Rows with weights are kept in another order than that in which they came."""
    X = rng.uniform(-2.0, 2.0, (60, 1))
    X[40:] = X[:20]
    y = np.sin(3.0 * X[:, 0]) + 0.01 * rng.standard_normal(60)
    y[49:] += 2.0
    y[40:44] = y[:4]  # copies of each other once they are in one chunk
    X[44:46], y[44:46] = X[40:42], y[40:42]
    weight = np.where(weighted, rng.uniform(1.0, 2.0, 60), 1.0)
    weight[42] = 0.0
    model = make_model(learn_hyperparameters=True, max_iter=5, forgetting=100)
    model.partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:], sample_weight=weight[40:])
    assert model._state.doubts.n_seen_changed == 49


def test_a_change_within_a_long_chunk_is_where_it_is(rng):
    """The first rows of the chunk are forgotten before it is looked at."""
    X = rng.uniform(-2.0, 2.0, (100, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.01 * rng.standard_normal(100)
    y[90:] += 2.0
    model = make_model(learn_hyperparameters=True, max_iter=5, forgetting=40)
    model.partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    assert model._state.doubts.n_seen_changed == 90


def test_a_change_is_found_in_rows_of_many_calls(rng):
    """One row each, of which none is enough; those before it are not doubted any more."""
    X = rng.uniform(-2.0, 2.0, (70, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(70)
    y[50:] += 0.5
    settings = {"learn_hyperparameters": True, "max_iter": 5, "forgetting": 500}
    model, lengths = make_model(**settings).partial_fit(X[:40], y[:40]), []
    for i in range(40, 70):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        doubts = model._state.doubts
        lengths.append(len(doubts.number))
        if doubts.n_seen_changed is not None:
            break
    assert abs(doubts.n_seen_changed - 50) < 4 and i > 52
    assert min(lengths[:10]) == 0 and lengths[-1] == 0


def test_rows_that_are_known_to_be_noisy_do_not_contradict(rng):
    X = rng.uniform(-2.0, 2.0, (60, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.01 * rng.standard_normal(60)
    y[40:] += 2.0 * rng.standard_normal(20)
    for variance, changed in ((0.0, 40), (4.0, None)):
        model = make_model(learn_hyperparameters=True, max_iter=5, forgetting=100)
        model.partial_fit(X[:40], y[:40], y_var=0.0)
        model.partial_fit(X[40:], y[40:], y_var=np.full(20, variance))
        assert model._state.doubts.n_seen_changed == changed


def test_training_is_due_when_older_rows_are_down_to_a_twentieth(data):
    X, y, _ = data
    model = make_model(learn_hyperparameters=True, max_iter=1, forgetting=0.9).fit(X[:80], y[:80])
    trained = []
    for i in range(80, 110):  # 0.9 ** 28 is more, 0.9 ** 29 less
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        trained.append(model._state.n_seen_trained)
    assert trained == [80] * 28 + [109] * 2


def test_outliers_do_not_stop_a_stream_from_learning(data):
    """What contradicts predictions delays training, for once."""
    X, y, _ = data
    y = y.copy()
    y[45::10] += 5.0
    model = make_model(learn_hyperparameters=True, max_iter=1, forgetting=30)
    trained = set()
    for i in range(0, 120, 10):
        model.partial_fit(X[i : i + 10], y[i : i + 10])
        trained.add(model._state.n_seen_trained)
    assert max(np.diff(sorted(trained))) <= 60 and max(trained) >= 90


def test_every_output_fades_by_all_rows(data):
    X, y, T = data
    Y = np.column_stack([y, y])
    Y[60:, 1] = np.nan
    both = stream(make_model(forgetting=0.97), X, Y, 30)
    weight = 0.97 ** np.arange(119.0, -1.0, -1.0)
    second = make_model().fit(X[:60], y[:60], sample_weight=weight[:60])
    assert_allclose(both.predict(T)[:, 1], second.predict(T), rtol=1e-6)


def test_white_kernels_do_not_fade(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="forgetting need kernels without White"):
        make_model(kernel=RBF() + 0.1 * White(), forgetting=0.9).partial_fit(X, y)


@pytest.mark.parametrize("forgetting", [0.0, 1.5, 40.0, -3])
def test_a_share_or_a_number_of_rows_is_asked_for(forgetting, data):
    X, y, _ = data
    with pytest.raises(ValueError, match="forgetting"):
        make_model(forgetting=forgetting).fit(X, y)


@pytest.mark.parametrize("forgetting", [0.9, 0.99, 40])
def test_what_is_known_does_not_depend_on_the_chunks(forgetting, data):
    X, y, T = data
    once, twice = (stream(make_model(forgetting=forgetting), X, y, step) for step in (120, 60))
    assert_array_equal(np.isnan(once.loo_predict()[0]), np.isnan(twice.loo_predict()[0]))
    assert_allclose(once.predict(T, True), twice.predict(T, True), atol=1e-6)


@pytest.mark.parametrize(
    "together",
    [{}, {"output_covariance": "learned"}, {"output_hyperparameters": "shared"}],
)
def test_rows_of_all_outputs_are_counted(together, data):
    X, y, T = data
    X, Y = X[:60], np.column_stack([y, y])[:60]
    Y[30:, 1] = np.nan
    once, twice = (stream(make_model(forgetting=40, **together), X, Y, step) for step in (60, 30))
    for model in (once, twice):
        assert_array_equal(np.isfinite(model.loo_predict()[0]).sum(axis=0), [40, 10])
    assert_allclose(once.predict(T, True), twice.predict(T, True), atol=1e-6)


def test_learned_covariances_need_values_of_every_output(data):
    X, y, _ = data
    Y = np.column_stack([y, y])[:60]
    Y[30:, 1] = np.nan
    model = stream(make_model(forgetting=30, output_covariance="learned"), X[:30], Y[:30], 30)
    with pytest.raises(ValueError, match="Output 1 of y"):
        model.partial_fit(X[30:60], Y[30:])
    assert model.n_samples_seen_ == 30


def test_outputs_that_learn_know_the_newest_rows_of_all(data):
    X, y, _ = data
    Y = np.column_stack([y, y])
    Y[60:, 1] = np.nan
    settings = {"learn_hyperparameters": True, "max_iter": 2, "forgetting": 70}
    model = stream(make_model(**settings), X, Y, 40)
    assert_array_equal(np.isfinite(model.loo_predict()[0]).sum(axis=0), [70, 10])


@pytest.mark.parametrize("together", [{}, {"output_hyperparameters": "shared"}])
@pytest.mark.every_nth("together", 2)
def test_an_output_that_is_not_observed_any_more_keeps_its_newest_row(together, data):
    """And the stream of the others goes on."""
    X, y, T = data
    Y = np.column_stack([y, y])
    Y[20:, 1] = np.nan
    model = stream(make_model(forgetting=20, **together), X, Y, 10)
    assert_array_equal(np.isfinite(model.loo_predict()[0]).sum(axis=0), [20, 1])
    alone = make_model().fit(X[100:], y[100:])
    assert_allclose(model.predict(T)[:, 0], alone.predict(T), atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("forgetting", [0.9, 50])
def test_targets_whose_squares_overflow_are_refused(forgetting, data):
    X, y, T = data
    model = VBGPRegressor(RBF(), forgetting=forgetting, max_iter=2, random_state=0)
    before = model.fit(X[:40], y[:40]).predict(T)
    with pytest.raises(ValueError, match="spreads away"):
        model.partial_fit(X[40:42], 1e160 * y[40:42])
    assert_array_equal(model.predict(T), before)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("forgetting", [0.9, 0.99, 40])
@pytest.mark.every_nth("forgetting", 3)
def test_predictions_in_between_do_not_keep_what_older_rows_counted(data, forgetting, learns):
    """The factor of all rows goes on only where the first ones are and count as before."""
    X, y, *_ = data
    model = make_model(forgetting=forgetting, learn_hyperparameters=learns).fit(X[:40], y[:40])
    model.predict(X)
    model.partial_fit(X[40:42], y[40:42])
    anew = pickle.loads(pickle.dumps(model))
    assert_allclose(model.predict(X), anew.predict(X), rtol=1e-12)
