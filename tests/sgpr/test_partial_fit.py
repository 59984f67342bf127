"""partial_fit: new rows, in chunks of any size and order."""

from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp.kernels import RBF, Constant
from tests.sgpr.cases import (
    BLOCKED,
    INDEPENDENT,
    SPARSE_SOLVERS,
    WITH_NOISE_KERNEL,
    every,
    make_data,
    quick_for,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

independent = pytest.mark.parametrize("cls", INDEPENDENT)
blocked = pytest.mark.parametrize("cls", BLOCKED)
learning = pytest.mark.parametrize("learn_hyperparameters", [True, False])

N = 42
GIVEN = {"length_scale": [0.8, 1.5], "signal_std": 2.0, "noise_variance": 0.3}


def fixed(cls, **parameters):
    """Nothing to learn but q(s), so that chunks of data add."""
    X, _ = make_data(N)
    options = {"inducing_inputs": X[::5] + 0.1, "learn_hyperparameters": False}
    return small(cls, **{**options, **parameters})


def shuffled_chunks(n, n_chunks, seed=1):
    return np.array_split(np.random.default_rng(seed).permutation(n), n_chunks)


def stream(model, X, y, chunks):
    for rows in chunks:
        model.partial_fit(X[rows], y[rows])
    return model


def assert_equal_models(model, expected, X, rtol=1e-8):
    """Same predictions, bound, counts and hyperparameters."""
    for include_noise in (True, False):
        mean, std = model.predict(X, return_std=True, include_noise=include_noise)
        mean_expected, std_expected = expected.predict(
            X, return_std=True, include_noise=include_noise
        )
        assert_allclose(mean, mean_expected, rtol=rtol, atol=rtol * np.max(std_expected))
        assert_allclose(std, std_expected, rtol=rtol)
    assert model.n_samples_seen_ == expected.n_samples_seen_
    for name in vars(expected):
        if name.endswith(("_mean_", "_var_", "_variance_")) or name == "inducing_inputs_":
            assert_allclose(getattr(model, name), getattr(expected, name), rtol=rtol, err_msg=name)
    assert_allclose(model.lower_bound_, expected.lower_bound_, rtol=rtol)


# -- chunks equal the whole --------------------------------------------------------------------


@independent
@pytest.mark.parametrize("n_chunks", [7, N])
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize(
    "given",
    [(), *((name,) for name in GIVEN), tuple(GIVEN), ("hyperparameter_variance",)],
    ids="-".join,
)
@pytest.mark.in_turn("cls", "n_chunks", "normalize_y")
@pytest.mark.every_nth("given", 2)
@pytest.mark.every_nth("cls", 2)
def test_chunks_equal_one_fit(cls, n_chunks, normalize_y, given):
    X, y = make_data(N)
    values = {**GIVEN, "hyperparameter_variance": 0.05}
    parameters = {"normalize_y": normalize_y, **{name: values[name] for name in given}}
    expected = fixed(cls, **parameters).fit(X, y)
    model = stream(fixed(cls, **parameters), X, y, shuffled_chunks(N, n_chunks))
    assert_equal_models(model, expected, X)


@pytest.mark.parametrize("n_chunks", [7, N])
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize("noise_variance", [None, 0.3])
@pytest.mark.in_turn("n_chunks", "normalize_y")
@pytest.mark.every_nth("noise_variance", 2)
def test_chunks_equal_one_fit_with_a_given_noise_kernel(n_chunks, normalize_y, noise_variance):
    X, y = make_data(N)
    parameters = {
        "noise_kernel": Constant(0.5) * RBF([0.5, 1.0]),
        "normalize_y": normalize_y,
        "noise_variance": noise_variance,
    }
    cls = WITH_NOISE_KERNEL[0]
    expected = fixed(cls, **parameters).fit(X, y)
    model = stream(fixed(cls, **parameters), X, y, shuffled_chunks(N, n_chunks))
    assert_equal_models(model, expected, X)
    assert_allclose(model.noise_kernel_(X), expected.noise_kernel_(X), rtol=1e-8)


@independent
@pytest.mark.parametrize("normalize_y", [True, False])
def test_one_chunk_is_fit(cls, normalize_y):
    X, y = make_data(N)
    model = fixed(cls, normalize_y=normalize_y)
    expected = fixed(cls, normalize_y=normalize_y).fit(X, y)
    assert_equal_models(model.partial_fit(X[::-1], y[::-1]), expected, X)


@independent
@pytest.mark.every_nth("cls", 2)
def test_order_of_the_chunks_does_not_matter(cls):
    X, y = make_data(N)
    y = y * np.where(X[:, 0] > 0.0, 1.0, 30.0)  # chunks of very different scale
    chunks = np.array_split(np.argsort(X[:, 0]), 6)
    forward = stream(fixed(cls), X, y, chunks)
    assert_equal_models(stream(fixed(cls), X, y, chunks[::-1]), forward, X)


@independent
@pytest.mark.parametrize("psi", ["closed_form", "sampled"])
@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.in_turn("psi")
@pytest.mark.every_nth("solver", 2)
def test_chunks_equal_one_fit_however_expectations_are_taken(cls, psi, solver):
    X, y = make_data(N)
    expected = fixed(cls, psi=psi, solver=solver).fit(X, y)
    model = stream(fixed(cls, psi=psi, solver=solver), X, y, shuffled_chunks(N, 5))
    assert_equal_models(model, expected, X)


@independent
@pytest.mark.in_turn("cls")
def test_chunks_equal_one_fit_where_psi_is_chosen_by_cost(cls):
    """The whole is too large for the closed form (see psi="auto"), a chunk is not."""
    X, y = make_data(21_000)
    parameters = {"inducing_inputs": X[:20], "learn_hyperparameters": False}
    expected = small(cls, **parameters).fit(X, y)
    model = stream(small(cls, **parameters), X, y, shuffled_chunks(len(X), 4))
    assert_equal_models(model, expected, X[:50])


@independent
def test_chunks_equal_one_fit_with_one_inducing_input(cls):
    """Its columns are constant, and so do not give the inputs a scale."""
    X, y = make_data(N)
    options = {"inducing_inputs": X[:1]}
    expected = fixed(cls, **options).fit(X, y)
    assert_equal_models(stream(fixed(cls, **options), X, y, shuffled_chunks(N, 7)), expected, X)


@independent
def test_first_fit_then_chunks(cls):
    X, y = make_data(N)
    model = fixed(cls).fit(X[:20], y[:20])
    stream(model, X, y, [np.arange(20, 30), np.arange(30, N)])
    assert_equal_models(model, fixed(cls).fit(X, y), X)


def clusters(n_clusters=4, size=10):
    """Far apart, so that there is one way to divide them into blocks of equal size."""
    rng = np.random.default_rng(2)
    centers = 20.0 * np.array([[0.0, 0.0], [1.0, 0.2], [0.1, 1.5], [1.3, 1.7]])[:n_clusters]
    X = np.concatenate([center + rng.uniform(-2.0, 2.0, (size, 2)) for center in centers])
    y = np.sin(X[:, 0]) + np.repeat(np.arange(n_clusters), size) + 0.1 * rng.standard_normal(len(X))
    return X, y, np.arange(len(X)).reshape(n_clusters, size)


@blocked
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize("noise_variance", [None, 0.1])
@pytest.mark.parametrize("noise_kernel", [None, Constant(0.5) * RBF(1.0)], ids=["None", "RBF"])
@pytest.mark.in_turn("normalize_y", "noise_variance")
@pytest.mark.every_nth("noise_variance", 2)
def test_clusters_as_chunks_equal_one_fit(cls, normalize_y, noise_variance, noise_kernel):
    X, y, rows = clusters()
    parameters = {
        "inducing_inputs": X[::4],
        "length_scale": 2.0,
        "signal_std": 1.5,
        "normalize_y": normalize_y,
        "noise_variance": noise_variance,
        "noise_kernel": noise_kernel,
    }
    if noise_variance is None and not normalize_y:
        parameters["noise_variance"] = 0.2  # what the data say depends on the first chunk
    expected = fixed(cls, n_blocks=4, **parameters).fit(X, y)
    order = np.random.default_rng(3).permutation(4)
    model = stream(fixed(cls, n_blocks=1, **parameters), X, y, rows[order])
    assert_equal_models(model, expected, X + 0.1)


@blocked
@pytest.mark.every_nth("cls", 2)
def test_several_clusters_in_a_chunk(cls):
    X, y, rows = clusters()
    parameters = {"inducing_inputs": X[::4], "n_blocks": 2, **GIVEN}
    model = stream(fixed(cls, **parameters), X, y, [rows[:2].ravel(), rows[2:].ravel()])
    expected = fixed(cls, **{**parameters, "n_blocks": 4}).fit(X, y)
    assert_equal_models(model, expected, X + 0.1)


def test_pic_uses_the_data_of_every_chunk():
    """A new row's block may come from any call."""
    X, y, rows = clusters()
    model = stream(fixed(VBPICRegressor, n_blocks=1, inducing_inputs=X[::20], **GIVEN), X, y, rows)
    others = fixed(VBPICRegressor, n_blocks=1, inducing_inputs=X[::20], **GIVEN)
    stream(others, X, y, rows[1:])
    near = X[rows[0]] + 0.05
    error, error_without = (np.abs(m.predict(near) - y[rows[0]]).mean() for m in (model, others))
    assert error < 0.5 * error_without


# -- single rows and growing sets of inducing inputs -------------------------------------------


@every
@learning
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_single_rows_from_the_first_call(cls, learn_hyperparameters):
    X, y = make_data(12)
    model = small(cls, learn_hyperparameters=learn_hyperparameters)
    for i, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        assert model.partial_fit([x], [target]) is model
        assert model.n_samples_seen_ == i + 1
        mean, std = model.predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert np.all(std > 0.0)
        assert np.isfinite(model.lower_bound_)
    assert model.n_features_in_ == 2


@every
@learning
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_inducing_inputs_are_added_and_never_moved(cls, learn_hyperparameters):
    first = 32 if learn_hyperparameters else 1  # with fewer rows it starts again
    X, y = make_data(first + 28)
    model = small(cls, learn_hyperparameters=learn_hyperparameters, n_inducing=first + 11)
    model.partial_fit(X[:first], y[:first])
    assert_allclose(model.inducing_inputs_, np.unique(X[:first], axis=0))
    sizes = [first]
    for rows in np.split(np.arange(first, first + 28), 7):
        before = model.inducing_inputs_
        model.partial_fit(X[rows], y[rows])
        kept = model.inducing_inputs_[: len(before)]
        if len(before) == 1:  # one place has no spread: its model starts again with the next rows
            nearest = np.argmin(np.sum((model.inducing_inputs_ - before) ** 2, axis=1))
            kept = model.inducing_inputs_[[nearest]]
        assert_allclose(kept, before, rtol=1e-12)
        assert len(np.unique(model.inducing_inputs_, axis=0)) == len(model.inducing_inputs_)
        sizes.append(len(model.inducing_inputs_))
    assert sizes == [first + more for more in (0, 4, 8, 11, 11, 11, 11, 11)]


@every
def test_a_growing_set_of_inducing_inputs_keeps_the_old_rows(cls):
    """With room for all rows it ends where one fit with the same inducing inputs does."""
    X, y = make_data(24)
    parameters = {**GIVEN, "learn_hyperparameters": False, "normalize_y": False}
    model = stream(small(cls, n_inducing=24, **parameters), X, y, np.split(np.arange(24), 6))
    first = small(cls, n_inducing=24, **parameters).fit(X[:4], y[:4])
    assert len(first.inducing_inputs_) == 4
    # the first chunks have lost only what their few inducing inputs could not carry
    error_first = np.mean((first.predict(X) - y) ** 2)
    error_grown = np.mean((model.predict(X) - y) ** 2)
    assert len(model.inducing_inputs_) == 24
    assert error_grown < 0.5 * error_first


@quick_for(VBFITCRegressor, VBPITCRegressor)
@learning
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_given_inducing_inputs_stay(cls, learn_hyperparameters):
    X, y = make_data(30)
    Z = X[:6] + 0.1
    model = small(cls, inducing_inputs=Z, learn_hyperparameters=False, n_inducing=20)
    model.partial_fit(X[:10], y[:10])
    model.set_params(learn_hyperparameters=learn_hyperparameters)
    stream(model, X, y, np.split(np.arange(10, 30), 4))
    assert_allclose(model.inducing_inputs_, Z, rtol=1e-12)


@every
def test_repeated_rows_do_not_add_inducing_inputs(cls):
    X, y = make_data(5)
    model = stream(small(cls), X, y, [np.arange(5)] * 3)
    assert len(model.inducing_inputs_) == 5
    assert model.n_samples_seen_ == 15


# -- learning from a stream --------------------------------------------------------------------


@quick_for(VBFITCRegressor, VBPITCRegressor)
@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.every_nth("solver", 2)
def test_few_first_rows_do_not_set_the_hyperparameters(cls, solver):
    """The call that brings the 32nd row is one fit on all rows; later ones are not."""
    X, y = make_data(N)
    model = stream(small(cls, solver), X, y, [slice(0, 1), slice(1, 2), slice(2, 31)])
    model.partial_fit(X[31:40], y[31:40])
    assert_equal_models(model, small(cls, solver).fit(X[:40], y[:40]), X)
    places = model.inducing_inputs_
    assert_array_equal(model.partial_fit(X[40:], y[40:]).inducing_inputs_[: len(places)], places)


@quick_for(VBDTCRegressor, VBPICRegressor)
@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.every_nth("solver", 2)
def test_a_stream_improves(cls, solver):
    X, y = make_data(120, seed=4)
    X_test, y_test = make_data(200, seed=5)

    def rmse(model):
        return np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))

    parameters = {"n_inducing": 30, "max_iter": 8, "batch_size": 60}
    if cls in BLOCKED:
        parameters["n_blocks"] = 1
    model = small(cls, solver, **parameters)
    errors = []
    for rows in np.split(np.arange(120), 6):
        model.partial_fit(X[rows], y[rows])
        errors.append(rmse(model))
    if cls in BLOCKED:
        parameters["n_blocks"] = 6
    everything = small(cls, solver, **parameters).fit(X, y)
    assert errors[-1] < 0.8 * np.mean(errors[:2])
    # The inducing inputs stay where the first 30 rows were and the old rows are known through
    # them alone; the noise (sd 0.2) is the same for both.
    assert errors[-1] < 2.0 * rmse(everything)
    assert errors[-1] < 0.4 * np.std(y_test)


@every
def test_learning_moves_the_hyperparameters_and_reports_one_bound_per_call(cls):
    X, y = make_data(60)
    model = small(cls).fit(X[:40], y[:40])
    n_bounds, before = len(model.lower_bounds_), model.noise_variance_
    model.partial_fit(X[40:50], y[40:50]).partial_fit(X[50:], y[50:])
    assert len(model.lower_bounds_) == n_bounds + 2
    assert model.lower_bounds_[-1] == model.lower_bound_
    assert abs(model.noise_variance_ / before - 1.0) > 1e-6


def constant_at_first(n, n_constant):
    X, y = make_data(n)
    X[:n_constant, 1] = 0.5
    return X, y


@every
def test_a_stream_begins_again_when_a_column_comes_to_vary(cls):
    """Of which nothing was known, not even its unit.

    With one block, as VBPIC has what it remembers in the order of its blocks.
    """
    X, y = constant_at_first(48, 40)
    model = stream(small(cls, n_blocks=1) if cls in BLOCKED else small(cls), X, y, [slice(36)])
    calls = len(model.lower_bounds_)
    assert len(model.partial_fit(X[36:40], y[36:40]).lower_bounds_) == calls + 1
    model.partial_fit(X[40:45], y[40:45])
    assert_equal_models(model, clone(model).fit(X[:45], y[:45]), X)
    if cls in INDEPENDENT[:1]:
        assert model._state.kept_rows is None
    assert len(model.partial_fit(X[45:], y[45:]).lower_bounds_) == calls + 1


@pytest.mark.parametrize("options", [{}, {"learn_hyperparameters": False}])
def test_no_more_than_some_rows_wait_for_a_column_to_vary(options, monkeypatch):
    monkeypatch.setattr("skvbgp.sgpr._settings._FEW_ROWS", 39)
    X, y = constant_at_first(48, 40)
    model = small(VBDTCRegressor, **options).fit(X[:36], y[:36])
    assert (model._state.kept_rows is None) == bool(options)
    model.partial_fit(X[36:40], y[36:40])
    assert model._state.kept_rows is None
    calls = len(model.lower_bounds_)
    assert len(model.partial_fit(X[40:], y[40:]).lower_bounds_) == calls + 1


def test_a_category_that_is_new_to_a_stream_is_no_column_that_varies():
    X, y = make_data(48)
    X[:40, 1], X[40:, 1] = np.arange(40) % 3, 3.0
    model = small(VBDTCRegressor, categorical_features=[1]).fit(X[:40], y[:40])
    assert model._state.kept_rows is None
    calls = len(model.lower_bounds_)
    assert len(model.partial_fit(X[40:], y[40:]).lower_bounds_) == calls + 1


explained = pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)


def in_blocks_of_20(cls, monkeypatch, **parameters):
    """An instance whose blocks are as many as the rows ask for."""
    monkeypatch.setattr("skvbgp.sgpr._settings._BLOCK_ROWS", 20)
    return small(cls, **({"n_blocks": "auto"} if cls in BLOCKED else {}), **parameters)


@explained
@pytest.mark.every_nth("cls", 3)
def test_a_noise_kernel_is_learned_again_from_twice_as_many_rows(cls, monkeypatch):
    """Near rows, and places of the inducing inputs, are not those of the first chunk."""
    X, y = make_data(80)
    model = in_blocks_of_20(cls, monkeypatch, max_iter=5).fit(X[:40], y[:40])
    first = model.n_iter_
    model.partial_fit(X[40:79], y[40:79])
    assert len(model.lower_bounds_) == first + 1
    rows = model._state.all_rows[0]  # those of blocks are in their order
    assert len(rows) == 79
    model.partial_fit(X[79:], y[79:])
    y_of = {tuple(x): target for x, target in zip(X.tolist(), y.tolist(), strict=True)}
    X_again = np.concatenate([rows, X[79:]])
    y_again = np.array([y_of[tuple(x)] for x in X_again.tolist()])
    assert_equal_models(model, clone(model).fit(X_again, y_again), X)


@explained
@pytest.mark.every_nth("cls", 2)
def test_what_a_given_number_of_blocks_or_many_rows_have_set_is_adapted_alone(cls, monkeypatch):
    X, y = make_data(80)
    monkeypatch.setattr("skvbgp.sgpr._settings._FEW_ROWS", 39)
    model = small(cls).fit(X[:40], y[:40])
    n_bounds, before = len(model.lower_bounds_), model.noise_variance_
    model.partial_fit(X[40:], y[40:])
    assert model._state.kept_rows is None
    assert len(model.lower_bounds_) == n_bounds + 1
    assert abs(model.noise_variance_ / before - 1.0) > 1e-6


def test_blocks_are_made_again_once_a_tenth_of_the_rows_is_new(monkeypatch):
    """So it does not matter in which calls they came."""
    X, y = make_data(70)
    start = in_blocks_of_20(VBPICRegressor, monkeypatch, n_inducing=20).fit(X[:60], y[:60])
    once = deepcopy(start).partial_fit(X[60:], y[60:])
    twice = stream(deepcopy(start), X, y, [slice(60, 65), slice(65, 70)])
    assert_equal_models(twice, once, X)
    late = stream(deepcopy(start), X, y, [slice(60, 69), slice(69, 70)])
    assert late._state.blocks.n_divided == 69
    assert once._state.blocks.n_divided == twice._state.blocks.n_divided == 70


@every
@learning
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_a_buffer_may_be_used_again(cls, learn_hyperparameters):
    """What is kept of rows is the model's own."""
    X, y = make_data(N)
    model, expected = (small(cls, learn_hyperparameters=learn_hyperparameters) for _ in range(2))
    X_buffer, y_buffer = np.empty((14, 2)), np.empty(14)
    for rows in np.split(np.arange(N), 3):
        X_buffer[:], y_buffer[:] = X[rows], y[rows]
        model.partial_fit(X_buffer, y_buffer)
        expected.partial_fit(X[rows], y[rows])
    X_buffer[:] = y_buffer[:] = 0.0
    assert_array_equal(model.predict(X), expected.predict(X))


@independent
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_learned_noise_stays_when_larger_targets_come(cls):
    """Elsewhere, twenty times as large: the noise of the old rows was 0.1.

    It was 108 times the variance, and a standard deviation of 1.07, when noise went with the
    spread of y.
    """
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1.0, 1.0, (600, 1)), rng.uniform(2.0, 4.0, (200, 1))
    y, y_new = (np.sin(6.0 * x[:, 0]) + 0.1 * rng.standard_normal(len(x)) for x in (X, X_new))
    model = cls(30, max_iter=20, random_state=0).fit(X, y)
    before, (_, std) = model.noise_variance_, model.predict(X, return_std=True)
    assert 0.09 < np.mean(std) < 0.105
    _, std_after = model.partial_fit(X_new, 20.0 * y_new).predict(X, return_std=True)
    assert before < model.noise_variance_ < 1.1 * before
    assert np.mean(std_after) < 0.113


@pytest.mark.parametrize("n_inducing", [30, pytest.param(150, marks=pytest.mark.thorough)])
def test_standard_deviations_do_not_lose_their_digits(n_inducing):
    """Near rows have nearly the same, however much larger the function is elsewhere.

    With closed forms (30) and draws (150).
    """
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1.0, 1.0, (300, 1)), rng.uniform(2.0, 4.0, (100, 1))
    y, y_new = (np.sin(6.0 * x[:, 0]) + 0.1 * rng.standard_normal(len(x)) for x in (X, X_new))
    settings = {"solver": "collapsed", "max_iter": 8, "random_state": 0}
    model = VBDTCRegressor(n_inducing, **settings).fit(X, y).partial_fit(X_new, 20.0 * y_new)
    _, std = model.predict(np.linspace(0.5, 0.502, 12)[:, None], return_std=True)
    assert_allclose(std, std[0], rtol=1e-3)


@every
@learning
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_streams_are_reproducible(cls, learn_hyperparameters):
    X, y = make_data(N)
    chunks = np.split(np.arange(N), 3)
    models = [
        stream(small(cls, "stochastic", learn_hyperparameters=learn_hyperparameters), X, y, chunks)
        for _ in range(2)
    ]
    assert_array_equal(models[0].predict(X), models[1].predict(X))
    assert models[0].lower_bounds_ == models[1].lower_bounds_


@every
def test_first_call_is_fit(cls):
    X, y = make_data(N)
    model, expected = small(cls).partial_fit(X, y), small(cls).fit(X, y)
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model.lower_bounds_ == expected.lower_bounds_


@pytest.mark.thorough
@every
def test_fit_forgets_the_stream(cls):
    X, y = make_data(N)
    model = stream(small(cls), X, y, np.split(np.arange(N), 3)).fit(X, y)
    assert_array_equal(model.predict(X), small(cls).fit(X, y).predict(X))
    assert model.n_samples_seen_ == N


@independent
@pytest.mark.in_turn("cls")
@pytest.mark.thorough
def test_data_on_another_scale_than_the_first_chunk(cls):
    """The first rows are few and close together; the units must not be theirs for good."""
    X, y = make_data(300, seed=4)
    X = 1000.0 * X
    X_test, y_test = make_data(100, seed=5)
    model = small(cls, n_inducing=40, max_iter=10)
    stream(model, X, y, [np.arange(1), *np.split(np.arange(2, 300), 2)])
    error = np.sqrt(np.mean((model.predict(1000.0 * X_test) - y_test) ** 2))
    assert error < 0.7 * np.std(y_test)


def test_one_row_can_be_added_to_a_large_fit():
    X, y = make_data(300)
    model = small(VBDTCRegressor, "stochastic", batch_size=64).fit(X, y)
    before = model.predict(X[:1], return_std=True)[1]
    model.partial_fit(X[:1], y[:1])
    assert model.n_samples_seen_ == 301
    assert model.predict(X[:1], return_std=True)[1] < 1.2 * before
