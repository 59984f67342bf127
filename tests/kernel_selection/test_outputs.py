"""Several outputs: kernels and a belief for each, of the rows in which it was observed."""

import pickle
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp.inspection import KernelPosteriorDisplay
from tests.fits import fit_alone
from tests.kernel_selection.cases import KERNELS, make_series, small
from tests.observer import Recorder

pytestmark = pytest.mark.usefixtures("quick_searches")

N, CHUNKS = 48, [slice(0, 10), slice(10, 30), slice(30, 36), slice(36, 48)]
OPTIONS = {
    "exact": {"n_inducing": None},
    "inducing": {},
    "log": {"transforms": ["identity", "log"]},
    "batches": {"batch_size": 16},
    "gaussian": {"hyperparameter_posterior": "gaussian", "kernels": KERNELS[:1]},
    "series": {"kernels": "auto", "n_inducing": None, "n_trained": 1, "top_k": 2},
}
every = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


@pytest.fixture(scope="module")
def data():
    """Outputs of other scales. The second one is not in the third chunk, the last one always."""
    X, y = make_series(N)
    rng = np.random.default_rng(0)
    order = rng.permutation(N)
    X, y = X[order], y[order]
    Y = np.column_stack([y, 10.0 * np.cos(X[:, 0]) + 30.0 + rng.standard_normal(N)])
    Y[::3, 1] = Y[CHUNKS[2], 1] = np.nan
    return X, Y, np.linspace(1.0, 13.0, 9)[:, None]


def make_model(**options):
    return small(**{"max_iter": 1, **options})


def assert_as_alone(model, alone, T):
    mean, std = model.predict(T, return_std=True)
    f, cov = model.predict(T, return_cov=True, include_noise=False)
    quantiles = model.predict_quantiles(T, [0.2, 0.7])
    assert (mean.shape, cov.shape, quantiles.shape) == ((9, 2), (9, 9, 2), (9, 2, 2))
    for j, one in enumerate(alone):
        assert_array_equal((mean[:, j], std[:, j]), one.predict(T, return_std=True))
        f_alone, cov_alone = one.predict(T, return_cov=True, include_noise=False)
        assert_array_equal(f[:, j], f_alone)
        assert_array_equal(cov[..., j], cov_alone)
        assert_array_equal(quantiles[:, j], one.predict_quantiles(T, [0.2, 0.7]))


@every
@pytest.mark.in_turn("options")
@pytest.mark.thorough
def test_every_output_is_what_it_would_be_alone(data, options):
    X, Y, T = data
    model = make_model(**options)
    fitted, alone = clone(model).fit(X, Y), [fit_alone(model, data, j) for j in range(2)]
    assert_as_alone(fitted, alone, T)
    assert (fitted.n_outputs_, fitted.n_samples_seen_) == (2, N)
    assert fitted.n_iter_ == sum(one.n_iter_ for one in alone)
    assert_array_equal(fitted.lower_bound_, [one.lower_bound_ for one in alone])
    for j, one in enumerate(alone):
        assert_array_equal(fitted.kernel_posterior_[j], one.kernel_posterior_)
        assert repr(fitted.best_kernel_[j]) == repr(one.best_kernel_)
        assert fitted.transforms_[j] == one.transforms_
    expected = "\n".join(f"Output {j}: {one.summary()}" for j, one in enumerate(alone))
    assert fitted.summary() == expected
    y = np.column_stack([np.full(9, 6.0), np.where(np.arange(9) < 4, np.nan, 30.0)])
    parts = [one.log_predictive_density(T, np.nan_to_num(y[:, j])) for j, one in enumerate(alone)]
    parts[1][:4] = 0.0
    assert_allclose(fitted.log_predictive_density(T, y), sum(parts), rtol=1e-12)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(T), fitted.predict(T))


@pytest.mark.thorough
@every
def test_stream_learns_of_every_output_what_it_would_alone(data, options):
    X, Y, T = data
    rows_given, model = {"sample_weight": np.arange(N) % 4 / 2.0}, make_model(**options)
    if "transforms" not in options:  # a variance of y is none of its logarithm
        rows_given["y_var"] = np.full((N, 2), [0.1, 0.4]) + 0.1 * (np.arange(N) % 3)[:, None]
    stream = clone(model)
    for rows in CHUNKS:
        stream.partial_fit(X[rows], Y[rows], **{k: v[rows] for k, v in rows_given.items()})
    assert_as_alone(stream, [fit_alone(model, data, j, CHUNKS, **rows_given) for j in range(2)], T)
    assert stream.n_samples_seen_ == 36


@pytest.mark.thorough
def test_rows_beyond_the_kept_ones(data, monkeypatch):
    """An output may have come to sums over rows before another has."""
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 20)
    X, Y, T = data
    model = make_model()
    stream = clone(model)
    for rows in CHUNKS:
        stream.partial_fit(X[rows], Y[rows])
    assert_as_alone(stream, [fit_alone(model, data, j, CHUNKS) for j in range(2)], T)


def test_rows_left_out(data):
    X, Y, _ = data
    model, y_var = make_model(n_inducing=None), np.full((N, 2), [0.1, 0.4])
    mean, std = clone(model).fit(X, Y, y_var=y_var).loo_predict(X, Y, y_var=y_var)
    assert_array_equal(np.isnan(mean), np.isnan(Y))
    for j in range(2):
        rows = np.flatnonzero(~np.isnan(Y[:, j]))
        alone = fit_alone(model, data, j, y_var=y_var)
        expected = alone.loo_predict(X[rows], Y[rows, j], y_var=y_var[rows, j])
        assert_array_equal((mean[rows, j], std[rows, j]), expected)


def test_fewer_kernels_of_each(data):
    X, Y, T = data
    model = make_model()
    fitted, alone = clone(model).fit(X, Y), [fit_alone(model, data, j) for j in range(2)]
    assert fitted.prune(1) is fitted
    assert [len(models) for models in fitted.estimators_] == [1, 1]
    assert_as_alone(fitted, [one.prune(1) for one in alone], T)


@pytest.mark.thorough
def test_draws_have_the_distribution_of_every_output(data):
    """The second one is the exponential of a normal: its draws settle shares, but not moments."""
    X, Y, T = data
    fitted = make_model(transforms=["identity", "log"]).fit(X, Y)
    mean, std = fitted.predict(T, return_std=True)
    draws = fitted.sample_y(T, 4000, random_state=1)
    assert draws.shape == (9, 2, 4000)
    assert_allclose((draws.mean(axis=2) - mean)[:, 0] / std[:, 0], 0.0, atol=0.1)
    assert_allclose(draws.std(axis=2)[:, 0], std[:, 0], rtol=0.15)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    values = fitted.predict_quantiles(T, levels)
    below = draws[:, None] < values[..., None].swapaxes(1, 2)
    assert_allclose(below.mean(axis=3), np.broadcast_to(levels[:, None], (9, 5, 2)), atol=0.04)
    assert fitted.sample_y(T, 3, include_noise=False).shape == (9, 2, 3)


def test_a_column_is_a_vector(data):
    X, Y, T = data
    column, vector = make_model().fit(X, Y[:, :1]), make_model().fit(X, Y[:, 0])
    assert_array_equal(column.predict(T), vector.predict(T))
    assert column.summary() == vector.summary()
    assert column.n_outputs_ == 1


def test_unfit_outputs_are_refused(data):
    X, Y, T = data
    model = make_model().fit(X, Y)
    mean = model.predict(T)
    never = np.column_stack([Y[:, 0], np.full(N, np.nan)])
    for method, y, given, match in [
        ("fit", never, {}, "Output 1 of y has no observed value"),
        ("fit", np.where(np.isnan(Y), np.inf, Y), {}, "infinity"),
        ("fit", Y, {"y_var": np.ones((N, 3))}, "y_var has 3 columns, but y has 2"),
        ("partial_fit", Y[:, 0], {}, "y has 1 outputs, but there were 2"),
        ("loo_predict", Y[:, 0], {}, "y has 1 outputs, but there were 2"),
    ]:
        with pytest.raises(ValueError, match=match):
            getattr(model, method)(X, y, **given)
        assert_array_equal(model.predict(T), mean)
    with pytest.raises(ValueError, match="has 2 outputs, but this is about one"):
        KernelPosteriorDisplay.from_estimator(model)


@pytest.mark.thorough
def test_models_of_half_way(data):
    """Those of the outputs after each other, the later ones after one kernel; nobody is warned."""
    X, Y, T = data
    recorder, model = Recorder(T), make_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = clone(model).set_callbacks(recorder).fit(X, Y)
    mean = fitted.predict(T)
    assert_array_equal(mean, clone(model).fit(X, Y).predict(T))
    assert_array_equal(recorder.models[-1], mean)
    assert_array_equal(recorder.models[-2][:, 0], mean[:, 0])
    with pytest.warns(RuntimeWarning, match=re.escape("It was not reached.")):
        first = clone(model).set_callbacks(Recorder(T, 1)).fit(X, Y)
    assert_array_equal(recorder.models[0], first.predict(T))
    assert [np.isfinite(bounds).sum() for bounds in first.local_lower_bounds_] == [1, 1]
