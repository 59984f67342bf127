"""The estimator: predictions, posteriors, streams, phases of training, bad input."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp._core.linalg import cholesky
from skvbgp._core.parallel import spread_each
from skvbgp.spectrum import SVBSSGPRegressor
from skvbgp.spectrum._block_model import evidence_gradient
from skvbgp.spectrum._rows import Rows
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import POSTERIORS, make_data, small
from tests.test_callbacks import Recorder, passes

pytestmark = pytest.mark.usefixtures("quick_searches")

KNOWN = {
    "posterior": "point",
    "learn_hyperparameters": False,
    "length_scale": 1.5,
    "signal_variance": 4.0,
    "noise_variance": 0.3,
    "normalize_y": False,
}


def parts(model):
    """Frequencies, weights and hyperparameters in the user's units."""
    m, d = model.frequencies_.shape
    R, s = oracle.split(model.q_mean_, m, d)
    return R, s, model.signal_variance_, model.local_noise_variance_


# -- predictions -----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [-1.0, -0.3, 0.0, 0.4, 1.0])
@pytest.mark.every_nth("gamma", 4)
def test_point_posterior_at_gamma_is_the_literal_conditional(gamma):
    """At gamma = 0 this is the local SSGP predictor."""
    X, y = make_data()
    model = small(posterior="point", gamma=gamma, n_neighbors=None, n_samples=1).fit(X, y)
    R, _, signal, noise = parts(model)
    state, structure = model._state, model._state.q.structure
    z = np.random.RandomState(state.seed).standard_normal((1, structure.size))
    s = state.q.sample(z)[0, structure.weights] * state.target.unit
    mean, std = model.predict(X[:6] + 0.1, return_std=True, include_noise=False)
    offset, center = y.mean(), model.input_mean_
    labels = state.rows.lookup(state.coordinates.scaled(X[:6] + 0.1))
    for k, x in enumerate(X[:6] + 0.1 - center):
        known = state.rows.block(labels[k])
        X_k = state.coordinates.original(known.X) - center
        y_k = known.y * state.target.unit
        expected = oracle.test_conditional(x, X_k, y_k, R, s, gamma, signal, noise)
        assert mean[k] == pytest.approx(expected[0] + offset, rel=1e-7)
        assert std[k] ** 2 == pytest.approx(max(expected[1], 0.0), rel=1e-5, abs=1e-9)


def test_gamma_1_is_the_bayesian_linear_model_of_its_features():
    X, y = make_data()
    model = small(gamma=1.0, n_samples=4000, n_blocks=1, max_iter=1, **KNOWN).fit(X, y)
    Phi = oracle.design(X - X.mean(axis=0), model.frequencies_)
    Gamma = Phi @ Phi.T + 0.3 * 8 / 4.0 * np.eye(16)
    _, s, _, _ = parts(model)
    np.testing.assert_allclose(s, np.linalg.solve(Gamma, Phi @ y), rtol=1e-7)
    covariance = model.q_chol_[16:, 16:] @ model.q_chol_[16:, 16:].T
    np.testing.assert_allclose(covariance, 0.3 * np.linalg.inv(Gamma), rtol=1e-6)
    mean, std = model.predict(X[:5], return_std=True)
    np.testing.assert_allclose(mean, Phi.T[:5] @ s, atol=0.05)
    variance = np.diag(Phi.T[:5] @ covariance @ Phi[:, :5]) + 0.3
    np.testing.assert_allclose(std**2, variance, rtol=0.05)


def test_bound_of_the_linear_model_is_its_evidence():
    """With certain frequencies and the optimal q(s) the bound is tight, up to its draws."""
    X, y = make_data()
    gaps = []
    for seed in range(20):
        model = small(n_blocks=1, max_iter=1, **KNOWN).set_params(random_state=seed).fit(X, y)
        evidence = oracle.log_evidence(X - X.mean(axis=0), y, model.frequencies_, 4.0, 0.3)
        gaps.append(model.lower_bound_ - evidence)
    assert np.std(gaps) < 5.0
    assert np.mean(gaps) == pytest.approx(0.0, abs=3.0 * np.std(gaps) / np.sqrt(len(gaps)))


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.in_turn("posterior")
@pytest.mark.every_nth("gamma", 3)
def test_rows_are_predicted_alone_as_in_a_batch(posterior, gamma):
    X, y = make_data()
    model = small(posterior=posterior, gamma=gamma).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    alone = [model.predict(x[None], return_std=True) for x in X[:7]]
    alone_mean = np.concatenate([a[0] for a in alone])
    np.testing.assert_allclose(alone_mean, mean[:7], rtol=1e-9, atol=1e-9 * y.std())
    np.testing.assert_allclose(np.concatenate([a[1] for a in alone]), std[:7], rtol=1e-7)


@pytest.mark.parametrize(
    "settings",
    [{"gamma": gamma} for gamma in (0.0, 0.5, 1.0)]
    + [{"gamma": gamma, "n_neighbors": 9} for gamma in (0.0, 0.5)],
)
@pytest.mark.every_nth("settings", 2)
def test_joint_covariance_has_the_variances_and_is_positive_semidefinite(settings):
    X, y = make_data()
    model = small(**settings).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    mean_joint, cov = model.predict(X, return_cov=True)
    np.testing.assert_allclose(mean_joint, mean)
    np.testing.assert_allclose(np.diag(cov), std**2, rtol=1e-8)
    assert np.linalg.eigvalsh(cov).min() > 0.0


def test_gamma_and_n_samples_are_read_at_prediction():
    X, y = make_data()
    model = small().fit(X, y)
    local = model.predict(X)
    assert not np.allclose(model.set_params(gamma=1.0).predict(X), local)
    assert not np.array_equal(model.set_params(gamma=0.0, n_samples=2).predict(X), local)
    np.testing.assert_array_equal(model.set_params(n_samples=4).predict(X), local)


def test_noise_in_between_is_of_the_global_and_the_local_model():
    X, y = make_data()
    model = small(gamma=0.5, objective="bound").fit(X, y)
    known, local = model.noise_variance_, model.local_noise_variance_
    assert abs(known / local - 1.0) > 0.1
    f_std, std = (model.predict(X, True, include_noise=noise)[1] for noise in (False, True))
    np.testing.assert_allclose(std**2 - f_std**2, 0.25 * known + 0.75 * local, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_intervals_are_calibrated_at_both_ends_of_gamma(gamma):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (1200, 2))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(1200)
    model = SVBSSGPRegressor(30, gamma=gamma, max_iter=60, random_state=0).fit(X[:800], y[:800])
    mean, std = model.predict(X[800:], return_std=True)
    assert np.sqrt(np.mean((mean - y[800:]) ** 2)) < 0.4
    assert 0.9 < np.mean(np.abs(mean - y[800:]) < 1.96 * std) < 0.99


# -- posteriors ------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["blocks", "bound"])
@pytest.mark.every_nth("objective", 2)
@pytest.mark.thorough
def test_joint_posterior_correlates_frequencies_and_has_the_higher_bound(objective):
    X, y = make_data()
    common = {"objective": objective, "max_iter": 60, "batch_size": 64}
    joint = small(4, posterior="joint", **common).fit(X, y)
    factorised = small(4, posterior="factorised", **common).fit(X, y)
    covariance = joint.q_chol_ @ joint.q_chol_.T
    assert np.abs(covariance[0:2, 2:4]).max() > 1e-5  # r_1 with r_2
    assert np.abs(covariance[:8, 8:]).max() > 1e-3  # theta with s
    covariance = factorised.q_chol_ @ factorised.q_chol_.T
    assert not covariance[0:2, 2:].any() and not covariance[:8, 8:].any()
    assert joint.lower_bound_ > factorised.lower_bound_


def test_no_dense_factor_of_many_parameters(monkeypatch):
    model = small(posterior="factorised").fit(*make_data())
    size = len(model.q_chol_)
    monkeypatch.setattr("skvbgp.spectrum._regressor.MOST_JOINT", size - 1)
    with pytest.raises(AttributeError, match=f"{size} rows"):
        _ = model.q_chol_
    assert "q_mean_" in model._repr_html_() and "q_chol_" not in model._repr_html_()


def test_point_posterior_has_certain_frequencies():
    model = small(posterior="point").fit(*make_data())
    assert not model.q_chol_[:16].any() and model.q_chol_[16:, 16:].any()


def test_bound_rises_while_it_is_maximised():
    X, y = make_data(200)
    model = small(objective="bound", max_iter=40, batch_size=50).fit(X, y)
    assert np.mean(model.lower_bounds_[-5:]) > np.mean(model.lower_bounds_[2:7])
    assert len(model.lower_bounds_) == model.n_iter_ == 40


@pytest.mark.thorough
def test_objective_bound_has_the_higher_bound():
    """From one start."""
    X, y = make_data(200)
    same = {"length_scale": [2.0, 4.0], "max_iter": 40, "batch_size": 50}
    bounds = [
        small(objective=objective, **same).fit(X, y).lower_bound_
        for objective in ("bound", "blocks")
    ]
    assert bounds[0] > bounds[1]


def test_fixed_hyperparameters_stay():
    options = {"length_scale": [1.0, 3.0], "signal_variance": 4.0, "noise_variance": 0.3}
    for posterior in POSTERIORS:
        model = small(posterior=posterior, learn_hyperparameters=False, **options)
        model.fit(*make_data())
        np.testing.assert_allclose(model.length_scale_, [1.0, 3.0])
        found = model.signal_variance_, model.noise_variance_, model.local_noise_variance_
        np.testing.assert_allclose(found, [4.0, 0.3, 0.3])


@pytest.mark.thorough
@pytest.mark.parametrize("stop_after", [3, 10, 14])
def test_a_callback_may_stop_either_phase(stop_after):
    """The model is the one that the callback saw last; q takes its passes in any case."""
    X, y = make_data()
    recorder = Recorder(X, stop_after=stop_after)
    model = small(max_iter=10).set_callbacks(recorder).fit(X, y)
    assert recorder.calls == passes(stop_after)
    assert model.n_iter_ == min(stop_after, 10) + len(model.lower_bounds_)
    np.testing.assert_array_equal(model.predict(X), recorder.predictions[-1][0])


# -- partial_fit -----------------------------------------------------------------------------


def test_chunks_in_any_order_equal_one_fit():
    X, y = make_data(50)
    y = y - 10.0
    whole = small(gamma=1.0, max_iter=1, n_blocks=1, **KNOWN).fit(X, y)
    streamed = small(gamma=1.0, max_iter=1, n_blocks=1, **KNOWN)
    streamed.partial_fit(X[30:], y[30:])
    for rows in (slice(20, 30), slice(0, 1), slice(1, 8), slice(8, 20)):
        streamed.partial_fit(X[rows], y[rows])
    assert streamed.n_samples_seen_ == 50
    np.testing.assert_allclose(streamed.predict(X), whole.predict(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.every_nth("posterior", 2)
def test_new_rows_join_their_block_and_change_its_predictions(posterior):
    X, y = make_data(100)
    held = {"learn_hyperparameters": False, "n_neighbors": None}
    model = small(posterior=posterior, **held).fit(X[:60], y[:60])
    before, bound = model.predict(X), model.lower_bound_
    x = X[:1] + 0.01
    model.partial_fit(x, y[:1] + 2.0)
    labels = model._state.rows.lookup(model._state.coordinates.scaled(X))
    own = labels == model._state.rows.lookup(model._state.coordinates.scaled(x))
    change = np.abs(model.predict(X) - before)
    assert change[own].max() > 1e-3
    assert model.n_samples_seen_ == 61 and model.lower_bound_ != bound
    if posterior == "point":
        assert change[~own].max() < 1e-10


@pytest.mark.thorough
def test_information_of_a_stream_improves_the_model():
    X, y = make_data(400, seed=1)
    model = small(gamma=1.0, max_iter=40).fit(X[:80], y[:80])
    for start in range(80, 300, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    assert model.n_samples_seen_ == 300
    assert model.score(X[300:], y[300:]) > 0.8
    assert model.set_params(gamma=0.0).score(X[300:], y[300:]) > 0.9


def test_a_stream_holds_the_frequencies_that_a_fit_holds():
    X, y = make_data()
    model = small(learn_hyperparameters=False).fit(X[:50], y[:50])
    before = model.frequencies_
    model.partial_fit(X[50:], y[50:])
    np.testing.assert_array_equal(model.frequencies_, before)


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["blocks", "bound"])
@pytest.mark.in_turn("objective")
def test_a_stream_goes_on_learning(objective, monkeypatch):
    """Its rows are noisier than the first ones; a fit to all of them is the measure."""
    monkeypatch.setattr("skvbgp.spectrum._learner._RETRAINED_ROWS", 0)
    X, y = make_data(600)
    y[100:] += np.random.default_rng(1).standard_normal(500)
    options = {"objective": objective, "n_blocks": "auto", "max_iter": 30}
    model = small(**options).fit(X[:100], y[:100])
    first = model.local_noise_variance_
    for start in range(100, 600, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    whole = small(**options).fit(X, y)
    assert first < 0.7 * whole.local_noise_variance_
    for name in ("local_noise_variance_", "noise_variance_"):
        assert getattr(model, name) == pytest.approx(getattr(whole, name), rel=0.15)


def test_learning_visits_as_many_rows_however_many_are_known(monkeypatch):
    X, y = make_data(700)
    model, visited = small(4, n_blocks="auto", max_iter=5, batch_size=64).fit(X[:150], y[:150]), []

    def observed(block, *args):
        visited.append(len(block))
        return evidence_gradient(block, *args)

    monkeypatch.setattr("skvbgp.spectrum._learner._RETRAINED_ROWS", 0)
    monkeypatch.setattr("skvbgp.spectrum._training.evidence_gradient", observed)
    for rows in (slice(150, 200), slice(200, 650), slice(650, 700)):
        visited.clear()
        model.partial_fit(X[rows], y[rows])
        n_new = rows.stop - rows.start
        assert 0.5 * 5 * n_new < sum(visited) < 2.0 * 5 * n_new


def test_crowded_blocks_are_divided():
    X, y = make_data(1200)
    model = small(max_iter=2).fit(X[:40], y[:40])  # blocks of ten rows
    state = model._state
    data = state.rows
    for start in range(40, 1200, 29):
        rows = slice(start, start + 29)
        new = Rows(X[rows], y[rows]).scaled(state.coordinates, state.target)
        data = data.add(new)
    sizes = [len(data.block(k)) for k in range(data.n_blocks)]
    assert sum(sizes) == 1200 and max(sizes) <= data.capacity and min(sizes) > 0
    for k in range(0, data.n_blocks, 7):
        np.testing.assert_array_equal(data.lookup(data.block(k).X), k)


def test_a_single_row_says_nothing_of_the_spread():
    X, y = np.array([[0.5, -1.0]]), np.array([100.0])
    for k in (1, 3):  # copies are one row
        model = SVBSSGPRegressor(random_state=0).fit(np.repeat(X, k, 0), np.repeat(y, k))
        mean, std = model.predict(X + [[0.0, 0.0], [3.0, 3.0]], return_std=True)
        np.testing.assert_allclose(mean, 100.0)
        assert std[1] > 0.5 and std[0] < std[1]


@pytest.mark.thorough
def test_a_stream_from_a_single_row():
    X, y = make_data(64)
    model = small(n_blocks="auto", max_iter=40)
    for k in range(64):
        model.partial_fit(X[k : k + 1], y[k : k + 1])
    assert model.n_samples_seen_ == 64
    assert model.score(X, y) > 0.7


def test_a_stream_that_begins_again_is_cold():
    X, y = make_data()
    streamed = small(warm_start=True).partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    whole = small().fit(X, y)
    assert streamed.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(streamed.predict(X), whole.predict(X), atol=1e-6 * y.std())


def test_few_rows_that_change_after_a_call_are_those_of_the_call():
    """Which a stream begins again with."""
    X, y = make_data(50)
    expected = small().partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    first, targets = X[:20].copy(), y[:20].copy()
    model = small().partial_fit(first, targets)
    first[:], targets[:] = 7.0, -7.0
    model.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


def test_bounds_of_streams_are_on_the_scale_of_y():
    X, y = make_data(60)
    one, other = (
        small().fit(X[:50], unit * y[:50]).partial_fit(X[50:], unit * y[50:]).lower_bound_
        for unit in (1.0, 8.0)
    )
    np.testing.assert_allclose(other, one - 60 * np.log(8.0), rtol=1e-6)


def test_a_failed_call_changes_nothing():
    X, y = make_data()
    model = small().fit(X, y)
    before = pickle.dumps(vars(model))
    for bad in (np.zeros((1, 3)), np.full((1, 2), np.inf)):
        with pytest.raises(ValueError):
            model.partial_fit(bad, [1.0])
    assert pickle.dumps(vars(model)) == before


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.every_nth("posterior", 3)
def test_a_pickle_holds_one_triangle_of_q_and_not_its_factors(posterior):
    """They are as large again. Made anew, they are the same, also in products of a single draw."""
    X, y = make_data()
    model = small(posterior=posterior, gamma=1.0, n_samples=1).fit(X, y)
    expected = model.predict(X[:6])
    again = pickle.loads(pickle.dumps(model))
    q = again._state.q
    assert set(vars(q)) == {"structure", "mean", "precisions"}
    for one, other in zip(q.precisions, model._state.q.precisions, strict=True):
        np.testing.assert_array_equal(one, other)
    n_numbers = sum(len(P) * (len(P) + 1) // 2 for P in q.precisions) + len(q.mean)
    assert len(pickle.dumps(q)) < 8 * n_numbers + 1_500
    np.testing.assert_array_equal(again.predict(X[:6]), expected)


# -- invariances and input -------------------------------------------------------------------


@pytest.mark.thorough
def test_same_seed_same_model_whatever_n_jobs():
    X, y = make_data()
    first, second = small().fit(X, y), small(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    third = pickle.loads(pickle.dumps(first))  # arrays may lie elsewhere, which BLAS may round by
    np.testing.assert_allclose(first.predict(X), third.predict(X), atol=1e-12 * y.std())
    assert not np.array_equal(small(random_state=1).fit(X, y).predict(X), first.predict(X))


def test_n_jobs_is_for_predictions_and_read_there(monkeypatch):
    X, y = make_data()
    model, seen = small().fit(X, y), []

    def observed(*args, n_jobs=None, **options):
        seen.append(n_jobs)
        spread_each(*args, **options)

    monkeypatch.setattr("skvbgp._core.blockwise.spread_each", observed)
    model.predict(X)
    model.set_params(n_jobs=2).predict(X)
    assert seen == [None, 2]


def test_few_rows_take_few_large_factorisations(monkeypatch):
    """A default fit on 30 rows is a matter of half a second, not of ten."""
    X, y = make_data(30, d=3)
    orders = []

    def observed(K, *args):
        orders.append(len(K))
        return cholesky(K, *args)

    monkeypatch.setattr("skvbgp.spectrum._gaussian.cholesky", observed)
    SVBSSGPRegressor(random_state=0).fit(X, y)
    assert orders.count(500) < 50


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
@pytest.mark.every_nth("scale", 2)
def test_units_of_y_and_x_do_not_matter(scale):
    X, y = make_data()
    mean, std = small().fit(X, y).predict(X, return_std=True)
    mean_y, std_y = small().fit(X, scale * y).predict(X, return_std=True)
    np.testing.assert_allclose(mean_y / scale, mean, atol=1e-5 * y.std())
    np.testing.assert_allclose(std_y / scale, std, rtol=1e-5)
    mean_x = small().fit(scale * X, y).predict(scale * X)
    np.testing.assert_allclose(mean_x, mean, atol=1e-5 * y.std())


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("objective", ["blocks", "bound"])
@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X[:1], y[:1]),
        lambda X, y: (X, np.ones_like(y)),
        lambda X, y: (np.ones_like(X), y),
        lambda X, y: (np.repeat(X[:6], 10, axis=0), y),
        lambda X, y: (np.column_stack([X, X[:, 0], np.ones(len(X))]), y),
        lambda X, y: (X[:3], y[:3]),
        lambda X, y: (X, 1e-3 * y + 1e6),
    ],
)
@pytest.mark.in_turn("posterior", "objective")
@pytest.mark.every_nth("change", 3)
def test_degenerate_data_have_finite_answers(posterior, objective, change):
    X, y = change(*make_data())
    model = small(posterior=posterior, objective=objective, n_blocks="auto", max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gamma in (0.0, 0.5, 1.0):
            mean, std = model.set_params(gamma=gamma).fit(X, y).predict(X, return_std=True)
            assert np.isfinite(mean).all() and np.isfinite(std).all() and (std >= 0.0).all()
        model.partial_fit(X[:1], y[:1]).predict(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"gamma": 1.1}, "gamma"),
        ({"length_scale": [1.0, 2.0, 3.0]}, "length_scale"),
        ({"length_scale": -1.0}, "length_scale"),
        ({"signal_variance": 1e300, "noise_variance": 1e-300}, "out of range"),
        ({"posterior": "both"}, "posterior"),
        ({"n_frequencies": 0}, "n_frequencies"),
    ],
)
def test_wrong_parameters_have_clear_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(*make_data())


@pytest.mark.parametrize(("n_frequencies", "chosen"), [(400, "joint"), (401, "factorised")])
@pytest.mark.every_nth("n_frequencies", 2)
def test_the_posterior_is_joint_while_that_is_cheap(n_frequencies, chosen):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 3))
    common = {"max_iter": 1, "learn_hyperparameters": False}
    model = small(n_frequencies, **common).fit(X, X[:, 0])
    assert model._state.q.structure.posterior == chosen
    same = small(n_frequencies, posterior=chosen, **common).fit(X, X[:, 0])
    assert_allclose(model.predict(X, return_std=True), same.predict(X, return_std=True), rtol=1e-12)


@pytest.mark.thorough
def test_many_columns():
    """An error before any large matrix, whose remedy forms none: 294 MB for D = 6,060."""
    X = np.random.default_rng(0).standard_normal((20, 200))
    with pytest.raises(ValueError, match='take posterior="factorised"'):
        small(30, posterior="joint").fit(X, X[:, 0])
    tracemalloc.start()
    model = small(30, max_iter=1).fit(X, X[:, 0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert np.isfinite(model.predict(X)).all()


def test_spread_out_of_range_has_a_clear_error():
    X, y = make_data()
    with pytest.raises(ValueError, match="spread of y"):
        small().fit(X, 1e200 * y)
    with pytest.raises(ValueError, match="spread of X"):
        small().fit(1e200 * X, y)


def test_warm_start_goes_on_from_the_fit_before():
    X, y = make_data()
    model = small(warm_start=True, max_iter=30).fit(X, y)
    cold = clone(model).set_params(max_iter=1).fit(X, y)
    warm = model.set_params(max_iter=1).fit(X, y)
    assert warm.score(X, y) > cold.score(X, y)
    with pytest.raises(ValueError, match="warm_start"):
        model.set_params(n_frequencies=5).fit(X, y)


def test_memory_mapped_data(tmp_path):
    X, y = make_data()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(small().fit(mapped, y).predict(X), small().fit(X, y).predict(X))
