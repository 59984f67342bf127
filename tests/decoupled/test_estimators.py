"""The two estimators: what they learn, streams, bad input, state."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.exceptions import ConvergenceWarning

from skvbgp.base import Targets
from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.decoupled._state import Replay
from skvbgp.kernels import RBF, Matern, White
from tests.decoupled.cases import small
from tests.decoupled.problems import PARAMETRIZATIONS

pytestmark = pytest.mark.usefixtures("quick_searches")

each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
both = pytest.mark.parametrize("cls", [DecoupledGPRegressor, DecoupledGPClassifier])


def make_data(n=120, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2)) * [1.0, 30.0] + 5.0
    f = np.sin(1.5 * X[:, 0]) + 0.02 * X[:, 1]
    return X, 7.0 + 10.0 * (f + noise * rng.standard_normal(n))


def for_class(cls, y):
    return y if cls is DecoupledGPRegressor else np.where(y > np.median(y), "high", "low")


# -- regression --------------------------------------------------------------------------------


@pytest.mark.thorough
@each
@pytest.mark.parametrize("multipliers", [True, False, "per_input"])
@pytest.mark.in_turn("multipliers")
def test_it_learns(parametrization, multipliers):
    X, y = make_data(300)
    options = {"parametrization": parametrization, "generalized_length_scales": multipliers}
    model = small(DecoupledGPRegressor, max_iter=30, **options).fit(X[:200], y[:200])
    mean, std = model.predict(X[200:], return_std=True)
    rmse = np.sqrt(np.mean((y[200:] - mean) ** 2))
    assert rmse < 0.5 * np.std(y)
    assert np.mean(np.abs(y[200:] - mean) < 1.96 * std) > 0.85
    assert np.mean(std) < 2.5 * rmse  # after so few passes
    assert np.mean(model.lower_bounds_[-5:]) > model.lower_bounds_[0]
    assert len(model.mean_basis_) == 20
    assert len(model.cov_basis_) == 8


def test_user_kernel_is_over_the_inputs_as_given():
    X, y = make_data()
    kernel = 1.0 * Matern([1.0, 60.0], nu=2.5)
    model = small(DecoupledGPRegressor, kernel=kernel, learn_hyperparameters=False).fit(X, y)
    unit = np.std(y)
    assert_allclose(model.kernel_(X[:3]), unit**2 * kernel(X[:3]), rtol=1e-10)
    learned = small(DecoupledGPRegressor, kernel=kernel).fit(X, y)
    assert np.any(learned.kernel_(X[:3]) != model.kernel_(X[:3]))


def test_fixed_hyperparameters_and_points():
    X, y = make_data(20)
    model = small(DecoupledGPRegressor, learn_hyperparameters=False).fit(X, y)
    assert all(np.min(np.abs(X - z).sum(axis=1)) < 1e-9 for z in model.mean_basis_)
    assert_allclose(model.noise_variance_, 0.1 * np.var(y), rtol=1e-12)


@pytest.mark.thorough
def test_student_t_resists_outliers():
    X, y = make_data(200, noise=0.05)
    y_bad = y.copy()
    y_bad[::10] += 200.0
    errors = {}
    for likelihood in ("gaussian", "student_t"):
        model = small(DecoupledGPRegressor, likelihood=likelihood, max_iter=15).fit(X, y_bad)
        errors[likelihood] = np.mean((model.predict(X) - y) ** 2)
    assert errors["student_t"] < 0.5 * errors["gaussian"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e3, 1e12])
def test_outliers_do_not_set_the_units_of_student_t(size):
    X, y = make_data(100, noise=0.05)
    y_bad = y.copy()
    y_bad[3] += size
    model = small(DecoupledGPRegressor, likelihood="student_t", max_iter=30)
    expected = model.fit(X, y).predict(X, return_std=True)
    whole = model.fit(X, y_bad).predict(X, return_std=True)
    stream = clone(model).partial_fit(X[:50], y_bad[:50]).partial_fit(X[50:], y[50:])
    for mean, std in (whole, stream.predict(X, return_std=True)):
        assert np.sqrt(np.mean((mean - expected[0]) ** 2)) < 0.05 * np.std(y)
        assert 0.5 < std.mean() / expected[1].mean() < 3.0


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_student_t_learns_a_function_that_is_flat_in_most_places(noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.3, 2.7, (200, 1))
    f = np.maximum(X[:, 0], 0.0)
    y = f + noise * rng.standard_normal(200)
    y[:3] += 1e6
    model = small(DecoupledGPRegressor, likelihood="student_t", max_iter=40).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - f)[3:] ** 2)) < 0.1


@pytest.mark.thorough
@pytest.mark.parametrize("unit", [1.0, 1e3])
@pytest.mark.in_turn("unit")
def test_a_column_that_is_constant_at_first_varies_later(unit):
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (300, 2))
    X[:100, 1] = 0.3
    y = np.sin(2.0 * X[:, 0]) + np.cos(X[:, 1])
    X[:, 1] *= unit
    model = small(DecoupledGPRegressor, max_iter=25)
    for rows in np.split(np.arange(300), 3):
        model.partial_fit(X[rows], y[rows])
    assert np.sqrt(np.mean((model.predict(X[200:]) - y[200:]) ** 2)) < 0.25


@pytest.mark.thorough
def test_poisson_counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 1))
    rate = np.exp(1.0 + np.sin(2.0 * X[:, 0]))
    y = rng.poisson(rate)
    model = small(DecoupledGPRegressor, likelihood="poisson", max_iter=30).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.mean((mean - rate) ** 2) < 0.2 * np.var(rate)
    assert np.all(std**2 >= mean)
    f, f_std = model.predict(X, return_std=True, include_noise=False)
    assert_allclose(mean[:, None] > 0.0, True)
    assert np.std(f) < np.std(mean)
    draws = model.sample_y(X[:4], 5000, random_state=1)
    assert_array_equal(draws, np.round(draws))
    assert_allclose(draws.mean(axis=1), mean[:4], rtol=0.1)
    assert not hasattr(model, "noise_variance_")
    assert np.all(f_std < 2.0)


@pytest.mark.thorough
def test_latent_function_of_counts_is_the_logarithm_of_the_rate():
    """With the level of the counts, far from 0, in all that is said of it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (200, 1))
    y = rng.poisson(40.0 * np.exp(0.3 * np.sin(2.0 * X[:, 0])))
    model = small(DecoupledGPRegressor, likelihood="poisson", max_iter=30).fit(X, y)
    X = X[:20]
    f, std = model.predict(X, return_std=True, include_noise=False)
    assert_allclose(f + 0.5 * std**2, np.log(model.predict(X)), atol=1e-10)
    assert_allclose(model.predict(X, return_cov=True, include_noise=False)[0], f, atol=1e-10)
    median = model.predict_quantiles(X, 0.5, include_noise=False)
    assert_allclose(median, f, atol=1e-10)
    draws = model.sample_y(X, 1000, random_state=1, include_noise=False)
    assert_allclose(draws.mean(axis=1), f, atol=0.05)
    counts = model.sample_y(X, 1000, random_state=1)
    assert_allclose(counts.mean(axis=1), model.predict(X), rtol=0.1)


def make_large_counts(log_level, n=300):
    """X, counts and the logarithm of their rate."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    log_rate = log_level + np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1]
    return X, rng.poisson(np.exp(log_rate)), log_rate


@pytest.mark.thorough
@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
@pytest.mark.parametrize("log_level", [6.0, 11.0, 15.0])
def test_large_counts(parametrization, log_level):
    """The larger they are the better the rate is known; no step leads far away from them."""
    X, y, log_rate = make_large_counts(log_level)
    model = DecoupledGPRegressor(
        likelihood="poisson", parametrization=parametrization, max_iter=60, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = clone(model).fit(X, y)
        for rows in np.split(np.arange(len(X)), 3):
            model.partial_fit(X[rows], y[rows])
    for one in (fitted, model):
        error = one.predict(X, include_noise=False) - log_rate
        assert np.sqrt(np.mean(error**2)) < 0.2 * np.std(log_rate)


@pytest.mark.thorough
def test_counts_that_are_too_large_without_natural_steps():
    """There is a warning; their logarithms can be learned."""
    X, y, log_rate = make_large_counts(11.5)
    model = DecoupledGPRegressor(
        likelihood="poisson", parametrization="decoupled", max_iter=20, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match='has diverged: .* likelihood="gaussian"'):
        model.fit(X, y)
    model.set_params(likelihood="gaussian", parametrization="orthogonal")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, np.log(y))
    assert np.median(np.abs(model.predict(X) - log_rate)) < 0.1


def test_counts_that_no_poisson_is_for():
    X, y, _ = make_large_counts(20.0, n=10)
    with pytest.raises(ValueError, match='up to 1e.08. .* likelihood="gaussian"'):
        small(DecoupledGPRegressor, likelihood="poisson").fit(X, y)


@pytest.mark.parametrize("bad", [-1.0, 0.5])
def test_poisson_needs_counts(bad):
    X, _ = make_data(10)
    model = small(DecoupledGPRegressor, likelihood="poisson")
    with pytest.raises(ValueError, match="non-negative whole numbers"):
        model.fit(X, np.append(np.ones(9), bad))
    assert not hasattr(model, "n_features_in_")


def test_counts_that_are_all_zero():
    X, y = make_data(40)
    model = small(DecoupledGPRegressor, likelihood="poisson").fit(X, 0.0 * y)
    assert np.all(model.predict(X) < 0.5)


@pytest.mark.parametrize("scale", [1e-120, 1e100])
@pytest.mark.every_nth("scale", 2)
def test_scale_of_y_does_not_matter(scale):
    X, y = make_data()
    reference = small(DecoupledGPRegressor).fit(X, y).predict(X, return_std=True)
    mean, std = small(DecoupledGPRegressor).fit(X, scale * y).predict(X, return_std=True)
    assert_allclose(mean / scale, reference[0], atol=1e-6 * y.std())
    assert_allclose(std / scale, reference[1], rtol=1e-6)
    with pytest.raises(ValueError, match="rescale"):
        small(DecoupledGPRegressor).fit(X, 1e160 * y)


@each
@pytest.mark.every_nth("parametrization", 2)
def test_joint_predictions_agree_with_marginal_ones(parametrization):
    X, y = make_data()
    model = small(DecoupledGPRegressor, parametrization=parametrization).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    joint_mean, covariance = model.predict(X, return_cov=True)
    assert_allclose(joint_mean, mean, atol=1e-10 * y.std())
    assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-8)
    draws = model.sample_y(X[:2], 20_000, random_state=0)
    assert_allclose(np.cov(draws), covariance[:2, :2], rtol=0.05, atol=0.02 * std[0] ** 2)


# -- growth and streams ------------------------------------------------------------------------


def test_bases_grow_with_the_data():
    X, y = make_data(200)
    model = small(DecoupledGPRegressor, n_mean_basis=90, n_cov_basis=60, basis_growth=25)
    sizes = []
    for start in range(0, 200, 40):
        model.partial_fit(X[start : start + 40], y[start : start + 40])
        sizes.append((len(model.mean_basis_), len(model.cov_basis_)))
    assert sizes == [(40, 40), (65, 60), (90, 60), (90, 60), (90, 60)]
    assert model.n_samples_seen_ == 200


def test_fewer_rows_than_points():
    X, y = make_data(10)
    model = small(DecoupledGPRegressor).fit(X, y)
    assert len(model.mean_basis_) == 10
    assert len(model.cov_basis_) == 8


@pytest.mark.slow
@each
def test_a_stream_is_nearly_as_good_as_a_fit(parametrization):
    X, y = make_data(400)
    options = {"parametrization": parametrization, "max_iter": 20, "n_mean_basis": 30}
    fitted = small(DecoupledGPRegressor, **options).fit(X[:200], y[:200])
    streamed = small(DecoupledGPRegressor, **options)
    for start in range(0, 200, 40):
        streamed.partial_fit(X[start : start + 40], y[start : start + 40])
    errors = [np.std(y[200:] - model.predict(X[200:])) for model in (fitted, streamed)]
    assert errors[1] < 1.15 * errors[0]


@pytest.mark.thorough
def test_single_rows():
    X, y = make_data(20)
    model = small(DecoupledGPRegressor)
    for i in range(20):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        assert np.isfinite(model.predict(X)).all()
    assert model.n_samples_seen_ == 20
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.5


def test_rows_beyond_the_replay_are_a_uniform_sample():
    rng, rows = np.random.RandomState(0), np.arange(400.0)
    counts = np.zeros(400)
    for _ in range(300):
        replay = Replay.of(rows[:30, None], Targets(rows[:30]), 50, rng)
        for start in range(30, 400, 37):
            chunk = rows[start : start + 37]
            replay = replay.add(chunk[:, None], Targets(chunk), rng)
        assert len(replay) == 50
        assert replay.n_seen == 400
        assert_array_equal(replay.X[:, 0], replay.targets.y)
        counts[replay.targets.y.astype(int)] += 1
    parts = counts.reshape(8, 50).mean(axis=1) * 400 / 50 / 300
    assert_allclose(parts, 1.0, atol=0.15)


@both
@pytest.mark.every_nth("cls", 2)
def test_a_call_that_fails_changes_nothing(cls):
    X, y = make_data()
    model = small(cls).fit(X, for_class(cls, y))
    before = dict(vars(model))
    for bad in (np.full_like(X, np.inf), X[:, :1], X[:0]):
        with pytest.raises(ValueError):
            model.partial_fit(bad, for_class(cls, y)[: len(bad)])
    assert vars(model) == before


# -- classification ----------------------------------------------------------------------------


@pytest.mark.thorough
@each
@pytest.mark.in_turn("parametrization")
def test_two_classes(parametrization):
    X, y = make_data(300)
    labels = for_class(DecoupledGPClassifier, y)
    model = small(DecoupledGPClassifier, parametrization=parametrization, max_iter=20)
    assert model.fit(X[:200], labels[:200]).score(X[200:], labels[200:]) > 0.85


@pytest.mark.thorough
@each
@pytest.mark.in_turn("parametrization")
def test_more_classes(parametrization):
    X, y = make_data(300)
    labels = np.digitize(y, np.quantile(y, [0.33, 0.67]))
    model = small(DecoupledGPClassifier, parametrization=parametrization, max_iter=15)
    assert model.fit(X[:200], labels[:200]).score(X[200:], labels[200:]) > 0.75
    assert model.decision_function(X).shape == (300, 3)
    stream = clone(model)
    for rows in np.array_split(np.arange(200), 5):  # the first ones start again
        stream.partial_fit(X[rows], labels[rows], classes=[0, 1, 2])
    assert stream.score(X[200:], labels[200:]) > 0.7
    assert model.n_samples_seen_ == stream.n_samples_seen_ == 200


def test_probabilities_are_averages_over_the_latent_function():
    X, y = make_data(40)
    model = small(DecoupledGPClassifier, max_iter=3).fit(X, for_class(DecoupledGPClassifier, y))
    posterior, places = model._learner().posterior(model._state), X[:3] + 1.0
    mean, variance = posterior.process.moments(posterior.coordinates.scaled(places))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    expected = norm.cdf(mean + np.sqrt(variance) * nodes) @ weights / weights.sum()
    assert np.all(variance > 0.1)
    assert_allclose(model.predict_proba(places)[:, 1], expected, rtol=1e-6)


@pytest.mark.thorough
def test_streaming_classifier():
    X, y = make_data(300)
    labels = for_class(DecoupledGPClassifier, y)
    model = small(DecoupledGPClassifier, max_iter=20)
    for start in range(0, 200, 40):
        rows = slice(start, start + 40)
        model.partial_fit(X[rows], labels[rows], classes=["high", "low"])
    assert model.score(X[200:], labels[200:]) > 0.8


# -- state -------------------------------------------------------------------------------------


@both
@pytest.mark.every_nth("cls", 2)
def test_pickle_goes_on_bit_for_bit(cls):
    X, y = make_data()
    y = for_class(cls, y)
    model = small(cls).fit(X[:60], y[:60])
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.partial_fit(X[60:], y[60:])
    assert_array_equal(copy.predict(X), model.predict(X))
    assert_array_equal(copy.lower_bound_, model.lower_bound_)


@both
@pytest.mark.every_nth("cls", 2)
def test_warm_start_goes_on(cls):
    X, y = make_data()
    y = for_class(cls, y)
    model = small(cls, warm_start=True, max_iter=5).fit(X, y)
    before = model.lower_bounds_[0]
    assert model.fit(X, y).lower_bounds_[0] > before
    with pytest.raises(ValueError, match="features"):
        model.fit(X[:, :1], y)


@pytest.mark.parametrize("kernels", [(RBF([1.0, 1.0]), None), (None, RBF([1.0, 1.0]))])
@pytest.mark.every_nth("kernels", 2)
def test_another_kernel_changes_nothing_in_a_stream(kernels):
    """Also where a column varies that was constant: its unit is the kernel's that has learned."""
    X, y = make_data()
    X[:40, 1] = 0.0
    X[40:, 1] *= 1e3
    kept, changed = (small(DecoupledGPRegressor, kernel=kernels[0]) for _ in range(2))
    kept.fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    changed.fit(X[:40], y[:40]).set_params(kernel=kernels[1]).partial_fit(X[40:], y[40:])
    assert_array_equal(changed.predict(X), kept.predict(X))


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize(
    ("before", "now"),
    [("gaussian", "poisson"), ("poisson", "gaussian"), ("student_t", "gaussian")],
)
@pytest.mark.every_nth("n_outputs", 2)
@pytest.mark.every_nth("before", 2)
def test_another_likelihood_does_not_go_on(before, now, n_outputs):
    """Units and checks of y would be its own, the model that of the fit before."""
    X, y = make_data(60)
    y = np.squeeze(np.tile(np.round(np.abs(y))[:, None], n_outputs))
    for n in (10, 40):  # a stream of ten rows would begin again
        model = small(DecoupledGPRegressor, likelihood=before, warm_start=True).fit(X[:n], y[:n])
        model.set_params(likelihood=now)
        with pytest.raises(ValueError, match=f'likelihood="{now}" is not that of the fit before'):
            model.fit(X, y)
        with pytest.raises(ValueError, match=f'likelihood="{now}" is not that of the fit before'):
            model.partial_fit(X[n:], y[n:])
        assert np.all(np.isfinite(model.set_params(warm_start=False).fit(X, y).predict(X)))


def test_callbacks_see_every_pass():
    X, y = make_data()
    monitor = ScoringMonitor(scoring="r2")
    model = small(DecoupledGPRegressor, max_iter=4).set_callbacks(monitor).fit(X, y)
    rows = monitor.get_logs().data
    assert [row["task_name"] for row in rows] == ["fit"] + ["pass"] * 4
    assert_allclose(rows[-1]["r2"], model.score(X, y))
    scores = ScoringMonitor(scoring="accuracy")
    classifier = small(DecoupledGPClassifier, max_iter=4).set_callbacks(scores)
    classifier.fit(X, for_class(DecoupledGPClassifier, y))
    assert len(scores.get_logs().data) == 5


# -- bad input ---------------------------------------------------------------------------------

HARD = {
    "one row": (np.ones((1, 2)), np.ones(1)),
    "constant target": (np.arange(20.0).reshape(10, 2), np.full(10, 3.0)),
    "constant inputs": (np.ones((10, 2)), np.arange(10.0)),
    "duplicates": (np.repeat(np.arange(5.0), 8)[:, None], np.repeat(np.arange(5.0), 8)),
    "collinear": (np.outer(np.arange(30.0), [1.0, 2.0, 0.0]), np.sin(np.arange(30.0))),
    "tiny": (1e-140 * np.arange(30.0)[:, None], 1e-140 * np.sin(np.arange(30.0))),
    "huge": (1e140 * np.arange(30.0)[:, None], 1e140 * np.sin(np.arange(30.0))),
    "outlier": (np.append(np.arange(29.0), 1e8)[:, None], np.append(np.arange(29.0), 1e8)),
}


@each
@pytest.mark.parametrize("name", HARD)
@pytest.mark.in_turn("parametrization")
@pytest.mark.every_nth("name", 3)
def test_hard_data(name, parametrization):
    X, y = HARD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(DecoupledGPRegressor, parametrization=parametrization).fit(X, y)
        mean, std = model.predict(X, return_std=True)
        model.partial_fit(X[:1], y[:1])
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"parametrization": "decoupled", "n_mean_basis": 0}, "n_mean_basis"),
        ({"parametrization": "canonical"}, "parametrization"),
        ({"n_cov_basis": 0}, "n_cov_basis"),
        ({"likelihood": "cauchy"}, "likelihood"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y = make_data(10)
    with pytest.raises(ValueError, match=message):
        small(DecoupledGPRegressor, **parameters).fit(X, y)
    with pytest.raises(TypeError, match="kernel"):
        small(DecoupledGPRegressor, kernel="rbf").fit(X, y)
    with pytest.raises(ValueError, match="per_input"):
        small(DecoupledGPRegressor, kernel=RBF(), generalized_length_scales="per_input").fit(X, y)
    with pytest.raises(ValueError, match="must not have White: the noise is learned"):
        small(DecoupledGPRegressor, kernel=2.0 * (RBF() + White(0.1))).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        small(DecoupledGPRegressor, kernel=RBF([1.0, 2.0, 3.0])).fit(X, y)


@both
@pytest.mark.every_nth("cls", 2)
def test_clones_are_reproducible(cls):
    X, y = make_data()
    y = for_class(cls, y)
    model = small(cls)
    assert_array_equal(clone(model).fit(X, y).predict(X), model.fit(X, y).predict(X))
