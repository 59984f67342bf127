"""loo_predict: each row from its nearest others, or from those of its block, at the same q."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from tests.row_keepers import check_others_are_not_left_out
from tests.spectrum.cases import make_data, small

pytestmark = pytest.mark.usefixtures("quick_searches")


def leave_out_by_brute_force(model, X, i, y_var=None):
    """Mean and standard deviation of an observation at row i without it in its block."""
    state, learner = model._state, model._learner()
    rows, x = state.rows, state.coordinates.scaled(X[i : i + 1])
    parts = {k: rows.block(k) for k in range(rows.n_blocks)}
    changed = {k: part.take(np.any(part.X != x, axis=1)) for k, part in parts.items()}
    rest = replace(rows, changed=changed, n=rows.n - 1)
    mean, variance = learner.posterior(replace(state, rows=rest)).moments(X[i : i + 1], True)
    return mean[0], np.sqrt(variance[0] + (0.0 if y_var is None else y_var[i]))


@pytest.mark.parametrize("n_neighbors", [None, 7, 40, 500])
@pytest.mark.parametrize("n_frequencies", [2, 8, 30])
@pytest.mark.in_turn("n_frequencies")
@pytest.mark.every_nth("n_frequencies", 2)
def test_as_the_others_alone(n_neighbors, n_frequencies):
    """Whether there are more rows than features or less."""
    X, y = make_data()
    model = small(n_frequencies, n_neighbors=n_neighbors).fit(X, y)
    mean, std = model.loo_predict(X, y)
    for i in (0, 7, 59):
        expected = leave_out_by_brute_force(model, X, i)
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)
    assert_allclose(model.loo_predict(X[7:20], y[7:20]), [mean[7:20], std[7:20]], rtol=1e-9)


@pytest.mark.parametrize("n_neighbors", [None, 7])
@pytest.mark.every_nth("n_neighbors", 2)
def test_weights_known_noise_and_streams(n_neighbors, rng):
    X, y = make_data()
    weight, y_var = rng.uniform(0.2, 3.0, 60), rng.uniform(0.0, 2.0, 60)
    weight[3] = 0.0
    model = small(n_neighbors=n_neighbors).fit(X[:35], y[:35], weight[:35], y_var[:35])
    model.partial_fit(X[35:], y[35:], weight[35:], y_var[35:])
    mean, std = model.loo_predict(X, y, sample_weight=weight, y_var=y_var)
    assert_array_equal(np.flatnonzero(np.isnan(mean)), [3])
    for i in (0, 7, 40, 59):
        expected = leave_out_by_brute_force(model, X, i, y_var)
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)


@pytest.mark.thorough
def test_rows_of_a_stream_that_has_begun_again():
    """It is that of a fit to all of them, of which equal ones are one."""
    X, y = make_data()
    rows = np.append(np.arange(60), [0, 1])
    model = small().fit(X[:20], y[:20])
    for new in (rows[20:45], rows[45:]):
        model.partial_fit(X[new], y[new])
    model.partial_fit(X + 0.01, y)
    places, targets = np.vstack([X, X + 0.01]), np.append(y, y)
    weight = np.where(np.arange(120) < 2, 2.0, 1.0)
    assert len(model._state.kept_rows[1]) == 120 and model.n_samples_seen_ == 122
    mean, _ = model.loo_predict(places, targets, sample_weight=weight)
    expected = small().fit(places, targets, weight)
    assert_allclose(mean, expected.loo_predict(places, targets, sample_weight=weight)[0], rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", [None, 7])
@pytest.mark.every_nth("n_neighbors", 2)
def test_a_row_that_has_no_others(n_neighbors):
    """It is alone in its block, or alone in the world: the prior predicts it."""
    X, y = make_data(6)
    model = small(n_neighbors=n_neighbors, n_blocks=6).fit(X, y)
    mean, std = model.loo_predict(X, y)
    if n_neighbors is None:
        state = model._state
        variance = state.hyper.signal_variance + state.hyper.local_noise_variance
        assert_allclose(mean, state.target.mean, rtol=1e-12)
        assert_allclose(std, np.sqrt(variance) * state.target.unit, rtol=1e-9)
    assert np.isfinite(mean).all()
    mean, std = (
        small(n_neighbors=n_neighbors, n_blocks=1).fit(X[:1], y[:1]).loo_predict(X[:1], y[:1])
    )
    assert_allclose(mean, y[:1])
    assert std > 0.0


def test_several_outputs():
    X, y = make_data()
    Y = np.column_stack([y, y**2])
    Y[:5, 1] = np.nan
    mean, std = small().fit(X, Y).loo_predict(X, Y)
    assert mean.shape == std.shape == (60, 2)
    assert_array_equal(np.isnan(mean), np.isnan(Y))
    alone = small().fit(X[5:], Y[5:, 1]).loo_predict(X[5:], Y[5:, 1])
    assert_allclose([mean[5:, 1], std[5:, 1]], alone, rtol=1e-9)


def test_what_cannot_be_is_refused():
    X, y = make_data()
    with pytest.raises(NotFittedError):
        small().loo_predict(X, y)
    model = small().fit(X, y)
    check_others_are_not_left_out(model, X, y)
    with pytest.raises(ValueError, match="features"):
        model.loo_predict(X[:, :1], y)
    with pytest.raises(ValueError, match=r"gamma=0\.5"):
        model.set_params(gamma=0.5).loo_predict(X, y)
