"""loo_predict: each row from the others, at the hyperparameters and the belief of all."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skvbgp import VBKSRegressor
from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import total_statistics
from skvbgp.kernels import RBF, Constant, Linear
from tests.kernel_selection.cases import KERNELS, make_series, small
from tests.row_keepers import check_others_are_not_left_out

pytestmark = pytest.mark.usefixtures("quick_searches")


def make_data(n=40):
    """A wave that grows, positive for logarithms."""
    X, y = make_series(n)
    return X, np.exp(0.2 * y)


def leave_out_by_brute_force(model, X, targets, i):
    """Mean and standard deviation of an observation at row i by models of all the others."""
    state, others = model._state, np.delete(np.arange(len(X)), i)

    def learn(part):
        Z = part.inducing_inputs - part._frame.origin
        rows = X[others], targets[others]
        statistics = total_statistics(*rows, part._frame, Z, part.kernel, part._points)
        return replace(part, _statistics=statistics)

    posterior = model._learner().posterior(replace(state, models=tuple(map(learn, state.models))))
    mean, variance = posterior.moments(X[i : i + 1], True)
    return mean[0], np.sqrt(variance[0])


def check_brute_force(model, X, targets, mean, std):
    for i in (0, 7, len(X) - 1):
        expected = leave_out_by_brute_force(model, X, targets, i)
        if targets.variance is not None:
            expected = expected[0], np.sqrt(expected[1] ** 2 + targets.variance[i])
        assert_allclose([mean[i], std[i]], expected, atol=1e-8)


OPTIONS = {
    "exact": {"n_inducing": None},
    "inducing": {},
    "log": {"transforms": ["identity", "log"]},
    "batches": {"batch_size": 16, "max_iter": 2},
    "gaussian": {"hyperparameter_posterior": "gaussian", "kernels": KERNELS[:1]},
    "series": {"kernels": "auto", "n_inducing": None, "n_trained": 1, "top_k": 3},
}
OPTIONS = {name: {"max_iter": 2, **options} for name, options in OPTIONS.items()}
every = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


@every
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.in_turn("is_weighted")
@pytest.mark.every_nth("options", 4)
def test_as_the_others_alone(options, is_weighted, rng):
    X, y = make_data()
    weight = rng.uniform(0.2, 3.0, 40) if is_weighted else None
    model = small(**options).fit(X, y, sample_weight=weight)
    mean, std = model.loo_predict(X, y, sample_weight=weight)
    check_brute_force(model, X, Targets(y, weight), mean, std)
    some = slice(7, 20)
    alone = model.loo_predict(X[some], y[some], None if weight is None else weight[some])
    assert_allclose(alone, [mean[some], std[some]], rtol=2e-6)  # levels have large variances


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "log"])
@pytest.mark.every_nth("name", 2)
def test_known_noise(name, rng):
    X, y = make_data()
    weight, y_var = rng.uniform(0.2, 3.0, 40), rng.uniform(0.0, 0.5, 40)
    model = small(**OPTIONS[name])
    model.partial_fit(X[:25], y[:25], weight[:25], y_var[:25])
    model.partial_fit(X[25:], y[25:], weight[25:], y_var[25:])
    mean, std = model.loo_predict(X, y, weight, y_var)
    check_brute_force(model, X, Targets(y, weight, variance=y_var), mean, std)


def test_from_the_inverse_of_the_covariance():
    """With Q = C^-1: y_i - (Q y)_i / Q_ii and 1 / Q_ii [Rasmussen2006, eq. 5.12], then eq. (15)."""
    X, y = make_data()
    kernels = [("SE", Constant() * RBF()), ("LIN", Constant() + Linear())]
    model = small(kernels=kernels, n_inducing=None, normalize_y=False).fit(X, y)
    means, variances = [], []
    for part in model.estimators_:
        K = part.kernel(X - X.mean())
        Q = np.linalg.inv(K + part.noise_variance * np.eye(40))
        means.append(y - Q @ y / np.diagonal(Q))
        variances.append(1.0 / np.diagonal(Q))
    means, w = np.array(means), model.estimator_weights_
    expected = w @ means
    spread = w @ (np.array(variances) + means**2) - expected**2
    mean, std = model.loo_predict(X, y)
    assert_allclose(mean, expected, rtol=1e-5)
    assert_allclose(std, np.sqrt(spread), rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"hyperparameter_posterior": "gaussian"}])
@pytest.mark.every_nth("options", 2)
def test_rows_beyond_the_kept_ones(options, monkeypatch):
    """New rows are added to sums, and are taken away from these."""
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 25)
    X, y = make_data()
    model = small(kernels=KERNELS[:1], max_iter=2, **options).fit(X[:30], y[:30])
    model.partial_fit(X[30:], y[30:])
    check_brute_force(model, X, Targets(y), *model.loo_predict(X, y))


def test_rows_of_a_stream_and_of_fewer_kernels():
    X, y = make_data()
    model = small(n_inducing=None).fit(X[:25], y[:25]).partial_fit(X[25:], y[25:])
    model = pickle.loads(pickle.dumps(model)).prune(1)
    check_brute_force(model, X, Targets(y), *model.loo_predict(X, y))


@every
@pytest.mark.in_turn("options")
def test_rows_in_the_order_given(options):
    """Equal rows share a prediction, and are left out together; those without weight have none."""
    X, y = make_data()
    X[5], y[5] = X[4], y[4]
    weight = np.ones(40)
    weight[[3, 20]] = 0.0, 2.0
    model = small(**options).fit(X, y, sample_weight=weight)
    mean, std = model.loo_predict(X, y, sample_weight=weight)
    assert_array_equal(np.flatnonzero(np.isnan(mean)), [3])
    assert mean[4] == mean[5]
    copies = np.append(np.delete(np.arange(40), 3), 20)
    again = np.stack(model.loo_predict(X[copies], y[copies]))
    assert_allclose(again, np.stack([mean, std])[:, copies], rtol=1e-9)
    repeated = small(**options).fit(X[copies], y[copies]).loo_predict(X[copies], y[copies])
    assert_allclose(repeated, again, rtol=1e-7)


def test_rows_that_are_left_out_are_harder():
    X, y = make_data()
    model = small(n_inducing=None).fit(X, y)
    (mean, std), (seen, seen_std) = model.loo_predict(X, y), model.predict(X, return_std=True)
    assert np.mean((mean - y) ** 2) > 1.05 * np.mean((seen - y) ** 2)
    assert np.mean(std) > np.mean(seen_std)


# -- bad input -----------------------------------------------------------------------------------


def test_what_cannot_be_is_refused():
    X, y = make_data()
    with pytest.raises(NotFittedError):
        VBKSRegressor().loo_predict(X, y)
    model = small().fit(X, y)
    check_others_are_not_left_out(model, X, y)
    with pytest.raises(ValueError, match="y_var"):
        model.loo_predict(X, y, y_var=2.0)
    with pytest.raises(ValueError, match="features"):
        model.loo_predict(np.hstack([X, X]), y)


def test_rows_that_would_say_too_much(monkeypatch):
    """Of sums over rows, only what is more than all that they know is found out."""
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 25)
    X, y = make_data()
    model = small(kernels=KERNELS[1:]).fit(X, y)
    with pytest.raises(ValueError, match="more than all that the model knows"):
        model.loo_predict(100.0 * X, y)
