"""The regressor as a user sees it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from skvbgp.base import pick
from skvbgp.gp import VBGPRegressor
from skvbgp.gp._process import Process
from skvbgp.kernels import RBF, Constant, Matern
from tests.gp.cases import make_data, small

KERNEL = 2.0 * Matern([2.0, 3.0], nu=1.5)
FIXED = {"learn_hyperparameters": False}


def coverage(model, X, y, width=1.96):
    mean, std = model.predict(X, return_std=True)
    return np.mean(np.abs(y - mean) < width * std)


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 40])
@pytest.mark.in_turn("n_neighbors")
def test_defaults_learn_a_function_and_its_noise(n_neighbors):
    X, y = make_data(500)
    model = VBGPRegressor(n_neighbors=n_neighbors, random_state=0).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    assert np.sqrt(np.mean((y[100:] - mean) ** 2)) < 0.5
    assert 0.9 < coverage(model, X[100:], y[100:]) < 0.99
    assert 0.6 < coverage(model, X[100:], y[100:], width=1.0) < 0.8
    assert 0.1 < np.sqrt(model.noise_variance_) < 0.4
    assert_allclose(model.kernel_posterior_.sum(), 1.0)
    assert np.min(std) > 0.1
    best = model.kernels_[int(np.argmax(model.kernel_posterior_))][0]
    assert best in model.summary()


def test_a_summary_names_every_kernel_once():
    """With the belief in all that have its name, and none that rounds to nothing."""
    X, y = make_data(30)
    kernels = [("RBF", RBF(1.0)), ("Matern", Matern(2.0)), ("RBF", RBF(2.0)), ("far", RBF(3.0))]
    model = VBGPRegressor(kernels, learn_hyperparameters=False).fit(X, y)
    model.kernel_posterior_ = np.array([0.3, 0.246, 0.45, 0.004])
    lines = model.summary().splitlines()
    assert lines[1:-1] == ["- 0.75: RBF", "- 0.25: Matern"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_that_fade_are_not_all_noise(seed):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-2.0, 2.0, (120, 3))
    y = np.cos(3.0 * X[:, 2]) - np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    weight = 0.97 ** np.arange(120)
    model = VBGPRegressor(random_state=0).fit(X, y, sample_weight=weight)
    assert model.noise_variance_ < 0.1  # .42 where the first kernel ended, and all others with it


@pytest.mark.parametrize(
    ("n", "error", "density"),
    [
        (25, 0.01, 6.0),  # a density of 3.8 where noise was always expected
        (120, 1e-4, 8.0),  # 1e-7 of noise gave 7
    ],
)
@pytest.mark.thorough
def test_a_function_without_noise_is_known_that_well(rng, n, error, density):
    X = rng.uniform(size=(n + 50, 2))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])
    model = VBGPRegressor(random_state=0).fit(X[:n], y[:n])
    assert np.sqrt(np.mean((model.predict(X[n:]) - y[n:]) ** 2)) < error * y.std()
    assert model.log_predictive_density(X[n:], y[n:]).mean() > density


@pytest.mark.parametrize("n_neighbors", ["auto", 7])
def test_stream_of_any_order_is_one_fit(rng, n_neighbors):
    X, y = make_data(60)
    whole = small(KERNEL, n_neighbors=n_neighbors, **FIXED).fit(X, y)
    stream = clone(whole)
    for chunk in np.split(rng.permutation(60), [1, 20, 21, 50]):
        stream.partial_fit(X[chunk], y[chunk])
    places = X[:20] + 0.1
    for a, b in zip(
        whole.predict(places, return_std=True), stream.predict(places, return_std=True), strict=True
    ):
        assert_allclose(a, b, rtol=1e-8)
    assert stream.n_samples_seen_ == 60


@pytest.mark.usefixtures("quick_searches")
def test_new_rows_are_known_at_once_and_hyperparameters_follow():
    X, y = make_data(140)
    model = small(KERNEL, n_neighbors=20).fit(X[:60], y[:60])
    kernels = model.kernels_
    before = model.predict(X[60:61], return_std=True)[1]
    model.partial_fit(X[60:61], y[60:61])
    assert model.predict(X[60:61], return_std=True)[1] < before
    assert model.kernels_ == kernels
    model.partial_fit(X[61:], y[61:])
    assert model.kernels_ != kernels
    assert_array_equal(model.predict(X), small(KERNEL, n_neighbors=20).fit(X, y).predict(X))


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("two_outputs", [False, True])
@pytest.mark.every_nth("noisy", 2)
@pytest.mark.every_nth("two_outputs", 2)
def test_a_few_more_rows_extend_the_factor_that_predictions_have_made(
    rng, monkeypatch, noisy, two_outputs
):
    X, y = make_data(60)
    y = np.column_stack([y, -y]) if two_outputs else y
    y_var = rng.uniform(0.0, 2.0, y.shape) if noisy else None
    model = small(output_hyperparameters="shared").fit(X[:50], y[:50], y_var=pick(y_var, slice(50)))
    others = pickle.loads(pickle.dumps(model))
    model.predict(X)
    calls, factorise = [], Process.factorise
    monkeypatch.setattr(Process, "factorise", lambda *args: calls.append(1) or factorise(*args))
    for start, stop in [(50, 51), (51, 52), (52, 53)]:
        rows = slice(start, stop)
        calls.clear()
        model.partial_fit(X[rows], y[rows], y_var=pick(y_var, rows))
        if stop == 51:  # nothing is asked
            continue
        found = model.predict(X[:9] + 0.3, return_std=True)
        assert not calls
        anew = pickle.loads(pickle.dumps(model))
        assert_allclose(found, anew.predict(X[:9] + 0.3, return_std=True), rtol=1e-6)
        assert calls
    more = {"y_var": np.full(y[53:].shape, 1.0)}  # what was said before is of plain rows
    found = model.partial_fit(X[53:], y[53:], **more).predict(X)
    others.partial_fit(X[50:53], y[50:53], y_var=pick(y_var, slice(50, 53)))
    assert_allclose(found, others.partial_fit(X[53:], y[53:], **more).predict(X), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [0.1, 2.0])
def test_rows_of_another_scale_do_not_widen_intervals_elsewhere(rng, noise, monkeypatch):
    """A sine with noise of .1; then other places, where it is twenty times as large."""
    monkeypatch.setattr("skvbgp.gp._learner._COUNTS", (16, 32))
    X = np.concatenate([rng.uniform(0.0, 1.0, (200, 1)), rng.uniform(2.0, 3.0, (80, 1))])
    later = np.arange(280) >= 200
    y = np.where(later, 20.0, 1.0) * np.sin(6.0 * X[:, 0])
    y += np.where(later, noise, 0.1) * rng.standard_normal(280)
    model = VBGPRegressor([("a", 1.0 * RBF(0.5))], random_state=0).fit(X[:200], y[:200])
    before = np.mean(model.predict(X[:200], return_std=True)[1])
    for chunk in np.split(np.arange(200, 280), 4):
        model.partial_fit(X[chunk], y[chunk])
        assert_allclose(np.mean(model.predict(X[:200], return_std=True)[1]), before, rtol=0.2)


@pytest.mark.parametrize(("factor", "n_trained"), [(1.0, 60), (30.0, 66)])
def test_few_rows_are_learned_from_again_if_new_ones_have_another_scale(rng, factor, n_trained):
    X = np.sort(rng.uniform(0.0, 3.0, (66, 1)), axis=0)
    y = np.sin(3.0 * X[:, 0]) * np.where(np.arange(66) < 60, 1.0, factor)
    model = small(1.0 * RBF(0.5)).fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    assert model._state.count_trained == n_trained


def test_every_call_learns_again_as_long_as_fewer_than_32_rows_were_known(rng):
    X = rng.uniform(0.0, 3.0, (36, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(36)
    model = small(1.0 * RBF(0.5)).fit(X[:30], y[:30])
    trained = [model.partial_fit(X[[i]], y[[i]])._state.count_trained for i in range(30, 36)]
    assert trained == [31, 32, 32, 32, 32, 32]


def test_all_rows_that_have_scales_of_their_places_are_not_asked_for_one(rng, monkeypatch):
    """Intervals elsewhere stay; hyperparameters are learned again when there are twice as many."""
    monkeypatch.setattr("skvbgp.gp._learner._COUNTS", (8, 16))
    X = rng.uniform(0.0, 1.0, (70, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(70)
    model = small(1.0 * RBF(0.2)).fit(X, y)
    assert model.n_neighbors_ == 70
    monkeypatch.setattr("skvbgp.gp._posterior._SCALE_ROWS", 16)  # more would reach to the new ones
    before = model.predict(X, return_std=True)[1]
    model.partial_fit(X[:20] + 3.0, 20.0 * y[:20])
    assert model._state.count_trained == 70 and model.n_neighbors_ == 90
    assert_allclose(model.predict(X, return_std=True)[1], before, rtol=1e-3)


@pytest.mark.usefixtures("quick_searches")
def test_a_call_that_fails_leaves_the_estimator_as_it_was():
    X, y = make_data(40)
    model = small(KERNEL, n_neighbors=10).fit(X, y)
    before = model.predict(X)
    for bad in (np.inf, 1e300):
        with pytest.raises(ValueError):
            model.partial_fit(np.full((1, 2), bad), [0.0])
    assert_array_equal(model.predict(X), before)
    assert model.n_samples_seen_ == 40


def test_given_kernels_are_taken_in_the_units_of_X():
    X, y = make_data(50)
    given = clone(
        small([("a", 1.0 * RBF(2.0)), 1.0 * sklearn_kernels.Matern(2.0, nu=0.5)], **FIXED)
    )
    model = given.fit(X, y)
    assert [name for name, _ in model.kernels_][0] == "a"
    assert_allclose(model.kernel_posterior_, 0.5)
    assert model.kernels_[0][1] == (1.0 * RBF(2.0)).bind(2)
    alone = small(1.0 * RBF(2.0), **FIXED).fit(X, y).predict(X + 0.3)
    scaled = small(1.0 * RBF(20.0), **FIXED).fit(10.0 * X, y).predict(10.0 * (X + 0.3))
    assert_allclose(alone, scaled)


def test_exact_process_is_scikit_learns():
    from sklearn.gaussian_process import GaussianProcessRegressor

    X, y = make_data(30)
    model = small(1.0 * RBF([2.0, 3.0]), **FIXED).fit(X, y)
    kernel = 1.0 * sklearn_kernels.RBF([2.0, 3.0])
    exact = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None, normalize_y=True).fit(X, y)
    places = X + 0.2
    mean, covariance = exact.predict(places, return_cov=True)
    found_mean, found = model.predict(places, return_cov=True, include_noise=False)
    assert_allclose(found_mean, mean, atol=1e-6 * y.std())
    assert_allclose(found, covariance, atol=1e-6 * covariance.max())


@pytest.mark.thorough
@pytest.mark.parametrize("n_neighbors", ["auto", 10])
@pytest.mark.in_turn("n_neighbors")
def test_scale_and_origin_of_the_data_do_not_matter(n_neighbors):
    X, y = make_data(60)
    options = {"n_neighbors": n_neighbors, "max_iter": 3, "random_state": 0}
    mean, std = VBGPRegressor(**options).fit(X, y).predict(X + 0.1, return_std=True)
    other = VBGPRegressor(**options).fit(1e3 * X - 7.0, 1e-2 * y + 5.0)
    moved = other.predict(1e3 * (X + 0.1) - 7.0, return_std=True)
    assert_allclose(moved[0], 1e-2 * mean + 5.0, rtol=1e-4)
    assert_allclose(moved[1], 1e-2 * std, rtol=1e-2)


@pytest.mark.thorough
def test_warm_start_goes_on_from_the_kernels_found():
    X, y = make_data(60)
    model = small("auto", n_neighbors=20, warm_start=True).fit(X, y)
    names = [name for name, _ in model.kernels_]
    model.fit(X, y)
    assert {name for name, _ in model.kernels_} <= set(names)
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(X[:, :1], y)


@pytest.mark.usefixtures("quick_searches")
def test_kernels_of_few_rows_are_those_that_were_trained():
    """Not one of the draws that predictions average over; a warm start goes on from them."""
    X, y = make_data(60)
    model, other = (small(KERNEL, random_state=seed, warm_start=True).fit(X, y) for seed in (0, 1))
    assert other._state.mixture.processes != model._state.mixture.processes
    kernels = model.kernels_
    assert other.kernels_ == kernels
    assert model.set_params(**FIXED).fit(X, y).kernels_ == kernels
    assert model.partial_fit(X[:5] + 0.1, y[:5]).kernels_ == kernels


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_units_of_y_do_not_matter_without_its_mean(n_neighbors):
    """`normalize_y` is about the origin: noise and its prior are relative to the variance of y."""
    X, y = make_data(60)
    models = [
        small(normalize_y=False, n_neighbors=n_neighbors).fit(X, unit * (y - 9.0))
        for unit in (1.0, 1024.0)
    ]
    (mean, std), (large, large_std) = (model.predict(X + 0.1, return_std=True) for model in models)
    assert_allclose(large / 1024.0, mean, atol=1e-3)
    assert_allclose(large_std / 1024.0, std, atol=1e-3)
    assert_allclose(models[1].noise_variance_ / 1024.0**2, models[0].noise_variance_, rtol=1e-3)
    fixed = small(normalize_y=False, **FIXED).fit(X, 1024.0 * y)
    assert_allclose(fixed.noise_variance_, 0.1 * np.var(1024.0 * y))


@pytest.mark.thorough
def test_a_warm_start_has_a_pass_for_every_kernel_found():
    """Also where the parameters speak of fewer."""
    X, y = make_data(60)
    model = small("auto", warm_start=True, max_iter=1).fit(X, y)
    n_kernels = len(model.kernels_)
    assert n_kernels > 1
    assert model.set_params(kernel=KERNEL).fit(X, y).n_iter_ == n_kernels
    model = small("auto", n_neighbors=20, n_inducing=5, warm_start=True, max_iter=1)
    n_kernels = len(model.fit(X[:15], y[:15]).kernels_)
    assert n_kernels > 2
    assert n_kernels < model.fit(X, y).n_iter_ <= n_kernels + 4


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("kernels", [("auto", KERNEL), (KERNEL, "auto")], ids=["auto", "given"])
@pytest.mark.usefixtures("few_kernels")
@pytest.mark.every_nth("kernels", 2)
@pytest.mark.usefixtures("unjudged")
def test_kernels_of_the_fit_before_keep_their_units(kernels):
    """Those that were searched for are standardised, whatever `kernel` is by then."""
    X, y = make_data(40)
    X *= [1.0, 100.0]
    model = small(kernels[0], warm_start=True, max_iter=1).fit(X[:30], y[:30])
    other = pickle.loads(pickle.dumps(model))
    other.set_params(kernel=kernels[1])
    for one in (model, other):
        one.set_params(**FIXED).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    assert repr(other.kernels_) == repr(model.kernels_)
    assert_array_equal(other.predict(X), model.predict(X))


@pytest.mark.thorough
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_neighbors", ["auto", 8])
@pytest.mark.parametrize(
    "kind", ["constant y", "duplicates", "constant column", "one place", "grid"]
)
@pytest.mark.in_turn("n_neighbors")
def test_degenerate_data_get_an_answer(kind, n_neighbors):
    X, y = make_data(40)
    if kind == "constant y":
        y = np.full(40, 3.0)
    elif kind == "duplicates":
        X, y = np.repeat(X[:8], 5, axis=0), np.repeat(y[:8], 5)
    elif kind == "constant column":
        X[:, 1] = 1.0
    elif kind == "one place":
        X[:] = 1.0
    else:
        X = np.round(X)
    model = VBGPRegressor(n_neighbors=n_neighbors, max_iter=3, random_state=0).fit(X, y)
    mean, std = model.predict(np.vstack([X, X + 100.0]), return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0)
    if kind == "constant y":
        assert_allclose(mean, 3.0, atol=1e-6)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.in_turn("n")
@pytest.mark.usefixtures("few_kernels")
def test_very_few_rows(n):
    X, y = make_data(n)
    model = VBGPRegressor(random_state=0).fit(X, y)
    mean, std = model.predict(X + 1.0, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0)
    model.partial_fit(*make_data(5, seed=1))
    assert model.n_samples_seen_ == n + 5


@pytest.mark.thorough
def test_random_states_agree():
    """Mixtures depend little on which groups and rows are drawn."""
    X, y = make_data(200)
    kernels = [Matern([2.0, 3.0], nu=0.5), RBF([2.0, 3.0])]
    models = [small(kernels, n_neighbors=30, random_state=seed) for seed in (0, 1)]
    predictions = [model.fit(X[:150], y[:150]).predict(X[150:]) for model in models]
    assert np.sqrt(np.mean((predictions[0] - predictions[1]) ** 2)) < 0.15


@pytest.mark.thorough
def test_intervals_widen_where_the_function_is_rough():
    """Noise of two sizes: the scale around a place follows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 1))
    y = np.where(X[:, 0] > 0.0, 1.0, 0.05) * rng.standard_normal(400)
    model = small(1.0 * Matern(), n_neighbors=40, max_iter=15).fit(X, y)
    std = model.predict([[-0.6], [0.6]], return_std=True)[1]
    assert std[1] > 5.0 * std[0]


@pytest.mark.parametrize("n_neighbors", ["auto", 30])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.thorough
def test_intervals_of_any_size_hold_what_they_promise(n_neighbors):
    X, y = make_data(700)
    kernels = [Matern([2.0, 3.0], nu=0.5), Matern([2.0, 3.0], nu=2.5)]
    model = small(kernels, n_neighbors=n_neighbors, max_iter=10).fit(X[:200], y[:200])
    for share in (0.5, 0.8, 0.95):
        lower, upper = model.predict_interval(X[200:], share)
        assert (
            abs(np.mean((lower <= y[200:]) & (y[200:] <= upper)) - share) < 0.08
        )  # of 200 rows left out


@pytest.mark.parametrize("kernel", [[], "grammar", 3.0, Constant])
def test_bad_kernels_are_refused(kernel):
    with pytest.raises((TypeError, ValueError), match="kernel"):
        VBGPRegressor(kernel).fit(*make_data(10))


def start_stream(monkeypatch, most):
    """120 rows, and a model of the first 40, all of which predict, as up to so many would."""
    monkeypatch.setattr("skvbgp.gp._learner._COUNTS", (8, 16))
    monkeypatch.setattr("skvbgp.gp.search._many_rows._TRIED_WITH_ALL", ((50, 12),))
    monkeypatch.setattr("skvbgp.gp.search._many_rows._ALL_NEIGHBOURS", most)
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (120, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1])
    model = small(RBF()).fit(X[:40], y[:40])
    assert model.n_neighbors_ == 40
    return X, y, model


def test_a_stream_that_learns_no_more_may_outgrow_the_rows_that_all_predict(monkeypatch):
    X, y, model = start_stream(monkeypatch, 100)
    model.set_params(learn_hyperparameters=False)
    assert model.partial_fit(X[40:90], y[40:90]).n_neighbors_ == 90
    assert model.partial_fit(X[90:], y[90:]).n_neighbors_ == 16


@pytest.mark.parametrize(
    "kind",
    [
        "units",
        "gaps",
        pytest.param("shared", marks=pytest.mark.thorough),
        pytest.param("learned", marks=pytest.mark.thorough),
    ],
)
def test_what_has_been_learned_stays_where_a_stream_learns_no_more(kind, rng):
    X = rng.uniform(0.0, 3.0, (90, 2))
    y, given = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.02 * rng.standard_normal(90), {}
    if kind == "gaps":
        X[3, 1] = np.nan
    if kind in ("shared", "learned"):
        name = {"shared": "output_hyperparameters", "learned": "output_covariance"}[kind]
        y, given = np.column_stack([y, 2.0 * y + 0.1 * rng.standard_normal(90)]), {name: kind}
    model = small(Matern(nu=2.5), max_iter=20, **given).fit(X[:80], y[:80])
    kernels, noise = model.kernels_, np.copy(model.noise_variance_)
    model.set_params(learn_hyperparameters=False)
    model.partial_fit(X[80:] + [20.0, 0.0], 10.0 * y[80:])
    assert repr(model.kernels_) == repr(kernels)
    assert_array_equal(model.noise_variance_, noise)
    assert model.n_samples_seen_ == 90 and np.isfinite(model.predict(X[80:], True)).all()


def test_importances_are_the_users_own():
    X, y = make_data(40)
    model = small(**FIXED).fit(X, y)
    expected = [model.feature_importances_.copy(), model.feature_importances_std_.copy()]
    model.feature_importances_[...] = model.feature_importances_std_[...] = 7.0
    assert_array_equal([model.feature_importances_, model.feature_importances_std_], expected)


def test_a_stream_that_forgets_predicts_from_all_rows_until_it_learns_again(monkeypatch):
    """Processes of few rows are many, and would have a matrix each for every place."""
    monkeypatch.setattr("skvbgp.gp._learner._COUNTS", (8, 40))
    X, y = make_data(50)
    model = small(RBF(), forgetting=100).fit(X[:36], y[:36]).partial_fit(X[36:], y[36:])
    assert model._state.n_seen_trained == 36
    assert model.n_neighbors_ == 50 and model._state.posterior.is_exact
    monkeypatch.setattr("skvbgp.gp._learner.MOST_WITH_ALL", 45)
    model = small(RBF(), forgetting=100).fit(X[:36], y[:36]).partial_fit(X[36:], y[36:])
    assert model.n_neighbors_ == 40


def test_a_stream_that_outgrows_the_rows_that_all_predict_learns_again(monkeypatch):
    X, y, model = start_stream(monkeypatch, 60)
    assert model.partial_fit(X[40:60], y[40:60]).n_neighbors_ == 60
    assert model._state.count_trained == 40
    model.partial_fit(X[60:70], y[60:70])
    assert model._state.count_trained == 70
    assert model.n_neighbors_ <= 16
