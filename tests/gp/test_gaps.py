"""Missing entries of X, which are uncertain inputs."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from skvbgp import VBGPClassifier, VBGPRegressor
from skvbgp.base import Gaps
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.kernels import RBF, Matern
from tests.derivatives import numerical_gradient
from tests.gaps import make_data

pytestmark = pytest.mark.usefixtures("quick_searches")

KERNEL = 2.0 * Matern([2.0, 3.0, 4.0], nu=1.5)


def make_model(**parameters):
    settings = {"kernel": KERNEL, "learn_hyperparameters": False, "random_state": 0}
    return VBGPRegressor(**(settings | parameters))


def measure_nlpd(model, X, y):
    mean, std = model.predict(X, return_std=True)
    return np.mean(np.log(std) + 0.5 * ((y - mean) / std) ** 2)


@pytest.mark.parametrize("dof", [np.inf, 4.0])
def test_slopes_add_noise_and_have_the_gradient_of_differences(rng, dof):
    X, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    known = RowNoise(rng.integers(1, 4, 12), rng.uniform(size=12), rng.exponential(size=(12, 2)))
    process = Process(KERNEL, 0.3, dof, (0.5, 2.0))
    value, gradient = process.evidence(X, y, known)
    plain = RowNoise(known.weight, known.variance + known.inputs @ [0.5, 2.0])
    assert_allclose(value, Process(KERNEL, 0.3, dof).evidence(X, y, plain)[0])
    if np.isinf(dof):  # literally, with every row as often as it counts
        index = np.repeat(np.arange(12), known.weight)
        C = KERNEL(X[index]) + np.diag(0.3 + plain.variance[index])
        assert_allclose(value, multivariate_normal(cov=C).logpdf(y[index]))

    def evaluate(vector):
        return process.with_vector(vector).evidence(X, y, known)[0]

    assert_allclose(gradient, numerical_gradient(evaluate, process.vector), rtol=1e-5, atol=1e-6)
    assert_allclose(process.with_vector(process.vector).vector, process.vector)
    assert len(process.bounds) == len(process.vector)


def test_filled_rows_have_the_conditional_moments(rng):
    X, _ = make_data(500, rng)
    X = X * [1.0, 100.0, 1e-3] + [0.0, 5.0, 1.0]
    gaps = Gaps.of(X)
    filled, variance = gaps.fill(X)
    missing = np.isnan(X)
    assert_array_equal(filled[~missing], X[~missing])
    assert_array_equal(variance > 0.0, missing)
    assert gaps.fill(filled)[1] is None
    row = np.array([[1.0, np.nan, 1.0]])
    mean, var = gaps.fill(row)
    S = gaps.gaussian.covariance
    z = gaps.coordinates.scaled(np.array([[1.0, 5.0, 1.0]]))[0]
    others = [0, 2]
    weights = np.linalg.solve(S[np.ix_(others, others)], S[others, 1])
    centred = z[others] - gaps.gaussian.mean[others]
    expected = gaps.gaussian.mean[1] + weights @ centred
    assert_allclose(gaps.coordinates.scaled(mean)[0, 1], expected)
    assert_allclose(var[0, 1], S[1, 1] - weights @ S[others, 1])


@pytest.mark.parametrize("n_neighbors", ["auto", 30])
@pytest.mark.every_nth("n_neighbors", 2)
def test_rows_with_gaps_are_noisy_ones(rng, n_neighbors):
    """The posterior is that of the filled rows, each with its own noise."""
    X, y = make_data(60, rng)
    model = make_model(n_neighbors=n_neighbors, normalize_y=False).fit(X, y)
    filled, variance = Gaps.of(X).fill(X)
    slopes = np.array(model._state.mixture.processes[0].slopes) * model._state.frames.target.unit**2
    plain = make_model(n_neighbors=n_neighbors, normalize_y=False)
    plain.fit(filled, y, y_var=variance @ slopes)
    T, _ = make_data(9, rng, share=0.0)
    assert_allclose(model.predict(T, True), plain.predict(T, True), rtol=1e-8)
    T[::2, 1] = np.nan
    T_filled, T_variance = Gaps.of(X).fill(T)
    mean, std = model.predict(T, True)
    expected, expected_std = plain.predict(T_filled, True, y_var=T_variance @ slopes)
    assert_allclose(mean, expected, rtol=1e-8)
    assert_allclose(std, expected_std, rtol=1e-8)
    _, cov = model.predict(T, return_cov=True)
    _, expected_cov = plain.predict(T_filled, return_cov=True, y_var=T_variance @ slopes)
    assert_allclose(cov, expected_cov, rtol=1e-7, atol=1e-10)
    assert_allclose([model.predict(t[None])[0] for t in T], mean, rtol=1e-10)


def test_rows_left_out_have_the_noise_of_their_gaps(rng):
    """As a brute-force fit without the row predicts it, with the same Gaussian of the columns."""
    X, y = make_data(40, rng)
    model = make_model(normalize_y=False).fit(X, y)
    mean, std = model.loo_predict()
    filled, variance = Gaps.of(X).fill(X)
    slopes = np.array(model._state.mixture.processes[0].slopes)
    noise = variance @ slopes * model._state.frames.target.unit**2
    for i in (0, 7, 19):
        without = np.where(np.arange(40) == i, 1e12, noise)  # in the same units of y
        plain = make_model(normalize_y=False).fit(filled, y, y_var=without)
        expected, expected_std = plain.predict(filled[i : i + 1], True, y_var=noise[i])
        assert_allclose((mean[i], std[i]), (expected[0], expected_std[0]), rtol=1e-7)


def test_copies_that_stay_know_as_little_as_their_gaps_let_them(rng):
    """A row that counts three times, left out once, is predicted by one that counts twice."""
    X, y = make_data(40, rng)
    weight = np.ones(40)
    weight[np.flatnonzero(np.isnan(X[:, 1]))[0]] = 3.0
    posterior = make_model().fit(X, y, sample_weight=weight)._state.posterior
    rows, (index,) = posterior.rows, np.nonzero(posterior.rows.weight == 3.0)
    fewer = rows.noise.sharing(np.minimum(rows.weight, 2.0))
    expected = replace(posterior, rows=Rows.around(rows.X, rows.y, fewer)).measure(rows.X[index])
    found = posterior.leave_out(index, np.array([2.0]))
    assert_allclose(found.mean, expected.mean, atol=1e-5)


def test_gaps_add_as_much_as_the_scale_at_a_place_says(rng):
    X, y = make_data(80, rng)
    model = make_model(learn_hyperparameters=True, max_iter=3, n_neighbors=20).fit(X, y)
    posterior, places = model._state.posterior, np.array([[0.3, np.nan, 0.0]])
    filled, variance = posterior.gaps.fill(places)
    found, plain = posterior.measure(places), posterior.measure(filled)
    for c, process in enumerate(posterior.mixture.processes):
        scale = found.noise[0, c] / process.noise
        assert abs(np.log(scale)) > 1e-3
        added = found.variance[0, c] - plain.variance[0, c]
        assert_allclose(added, scale * variance[0] @ process.slopes, rtol=1e-8)


@pytest.mark.thorough
def test_predictions_are_better_than_behind_imputers(rng):
    X, y = make_data(160, rng)
    T, t = make_data(200, rng)
    settings = {"learn_hyperparameters": True, "max_iter": 10}
    ours = measure_nlpd(make_model(**settings).fit(X, y), T, t)
    for imputer in (SimpleImputer(), IterativeImputer(random_state=0)):
        imputed, T_imputed = imputer.fit_transform(X), imputer.transform(T)
        assert ours < measure_nlpd(make_model(**settings).fit(imputed, y), T_imputed, t) - 0.1


def test_slopes_of_inputs_without_gaps_are_measured(rng):
    """Only new rows have gaps: wide where the input matters, and not where it does not."""
    X, y = make_data(200, rng, share=0.0)
    model = make_model(learn_hyperparameters=True, max_iter=15).fit(X, y)
    T, t = make_data(300, rng, share=0.0)
    std = model.predict(T, True)[1]
    for j, low, high in ((1, 0.3, 0.9), (2, 0.0, 0.1)):
        gap = T.copy()
        gap[:, j] = np.nan
        mean, wide = model.predict(gap, True)
        assert np.mean(wide) > 0.95 * np.mean(std)
        assert low < np.median(wide) < high
        error = np.abs(mean - t) / wide
        assert 0.9 < np.mean(error < 1.96) < 0.99
        assert 0.55 < np.mean(error < 1.0) < 0.8  # .68, and more of what is no normal


def test_gaps_that_no_row_had_add_what_the_other_inputs_leave_open(rng):
    X, y = make_data(60, rng, share=0.0)
    model, gaps = make_model(normalize_y=False).fit(X, y), Gaps.of(X)
    places = np.array([[0.3, np.nan, 0.0]])
    filled, variance = gaps.fill(places)
    wide, std = (model.predict(T, return_std=True)[1] for T in (places, filled))
    assert 0.1 < variance[0, 1] < 0.6
    expected = variance[:, 1] * gaps.measure_slope(1, X, model.predict)
    assert_allclose(wide**2 - std**2, expected, rtol=1e-6)


def test_stream_knows_gaps_as_a_fit_does(rng):
    X, y = make_data(90, rng)
    X[:30] = np.where(np.isnan(X[:30]), 0.5, X[:30])  # the gaps begin later
    T, _ = make_data(9, rng)
    for learns in (False, True):
        stream = make_model(learn_hyperparameters=learns, max_iter=5)
        for i in range(0, 90, 30):
            stream.partial_fit(X[i : i + 30], y[i : i + 30])
        whole = make_model(learn_hyperparameters=learns, max_iter=5).fit(X, y)
        rtol = 0.3 if learns else 1e-8  # learned from 60 of the rows
        assert_allclose(stream.predict(T), whole.predict(T), rtol=rtol, atol=0.3 * learns)
        assert stream.n_samples_seen_ == 90


def test_a_few_rows_with_the_first_gap_are_learned_from(rng):
    X, y = make_data(52, rng)
    X[:48] = np.where(np.isnan(X[:48]), 0.5, X[:48])
    X[50, 1] = np.nan
    stream = (
        make_model(learn_hyperparameters=True, max_iter=5)
        .partial_fit(X[:48], y[:48])
        .partial_fit(X[48:], y[48:])
    )
    whole = make_model(learn_hyperparameters=True, max_iter=5).fit(X, y)
    assert_allclose(stream.predict(X), whole.predict(X), rtol=1e-8)


@pytest.mark.parametrize("forgetting", [1, 40])
def test_rows_to_predict_have_gaps_that_later_rows_of_a_stream_fill(rng, forgetting):
    """Where nothing is learned, a stream is a fit also if none of its own rows has a gap."""
    X, T = rng.standard_normal((90, 3)), rng.standard_normal((9, 3))
    X[30:, 1] = 3.0 + X[30:, 0]
    T[:, 1] = np.nan
    y = X[:, 0] + np.sin(X[:, 1])
    stream, classes = (
        make_model(forgetting=forgetting),
        VBGPClassifier(RBF(2.0), learn_hyperparameters=False),
    )
    for i in range(0, 90, 30):
        stream.partial_fit(X[i : i + 30], y[i : i + 30])
        classes.partial_fit(X[i : i + 30], y[i : i + 30] > 0.0, classes=[False, True])
    known = slice(0 if forgetting == 1 else 50, None)
    whole = make_model().fit(X[known], y[known])
    assert_allclose(stream.predict(T, True), whole.predict(T, True), rtol=1e-6)
    both = clone(classes).fit(X, y > 0.0)
    assert_allclose(classes.predict_proba(T), both.predict_proba(T), rtol=1e-6)


def test_weights_count_rows_with_gaps(rng):
    X, y = make_data(40, rng)
    weight = rng.integers(0, 3, 40)
    index = np.repeat(np.arange(40), weight)
    T, _ = make_data(9, rng)
    weighted = make_model().fit(X, y, sample_weight=weight)
    repeated = make_model().fit(X[index], y[index])
    # the Gaussian of the columns is that of distinct rows: merging comes first
    assert_allclose(weighted.predict(T, True), repeated.predict(T, True), rtol=1e-8)


def test_hopeless_gaps(rng):
    X, y = make_data(40, rng)
    X[:, 2] = np.nan
    model = make_model().fit(X, y)
    mean, std = model.predict(np.full((2, 3), np.nan), True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0.0)
    assert std[0] > model.predict(np.zeros((1, 3)), True)[1][0]
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, 0.0, 0.0]])
    with pytest.raises(ValueError, match="without missing entries"):
        model.predict_gradient([[np.nan, 0.0, 0.0]])


def test_gaps_of_several_outputs(rng):
    X, y = make_data(60, rng)
    Y = np.column_stack([y, -y])
    Y[::4, 1] = np.nan
    T, _ = make_data(9, rng)
    mean, _ = make_model().fit(X, Y).predict(T, return_std=True)
    assert_allclose(mean[:, 0], make_model().fit(X, y).predict(T), rtol=1e-8)


def make_classes(n, rng, share=0.3):
    X, y = make_data(n, rng, share)
    return X, np.digitize(y, [-0.5, 0.5])


@pytest.mark.parametrize("n_neighbors", ["auto", 60])
@pytest.mark.thorough
def test_classes_are_predicted_better_than_behind_imputers(rng, n_neighbors):
    X, y = make_classes(150, rng)
    T, t = make_classes(200, rng)
    settings = {"n_neighbors": n_neighbors, "max_iter": 6, "random_state": 0}
    model = VBGPClassifier(RBF(2.0), **settings)
    ours = log_loss(t, clone(model).fit(X, y).predict_proba(T))
    for imputer in (SimpleImputer(), IterativeImputer(random_state=0)):
        assert ours < log_loss(t, make_pipeline(imputer, model).fit(X, y).predict_proba(T)) - 0.01


@pytest.mark.thorough
def test_classes_of_new_rows_with_gaps(rng):
    """No training row has one: less is known where the input matters, and not where it does not."""
    X, y = make_classes(200, rng, share=0.0)
    model = VBGPClassifier(RBF(2.0), max_iter=10, random_state=0).fit(X, y)
    T, _ = make_classes(100, rng, share=0.0)
    whole = model.predict_proba(T).max(axis=1).mean()
    for j, low, high in ((1, 0.02, 0.5), (2, -0.02, 0.05)):
        gap = T.copy()
        gap[:, j] = np.nan
        assert low < whole - model.predict_proba(gap).max(axis=1).mean() < high
    assert_allclose(model.predict_proba(np.full((1, 3), np.nan)).sum(), 1.0)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.every_nth("learns", 2)
def test_stream_of_classes_knows_gaps_as_a_fit_does(rng, learns):
    X, y = make_classes(90, rng)
    X[:30] = np.where(np.isnan(X[:30]), 0.5, X[:30])  # the gaps begin later
    T, _ = make_classes(200, rng)
    settings = {"learn_hyperparameters": learns, "max_iter": 5, "random_state": 0}
    stream = VBGPClassifier(RBF(2.0), **settings)
    for i in range(0, 90, 30):
        stream.partial_fit(X[i : i + 30], y[i : i + 30], classes=[0, 1, 2])
    whole = VBGPClassifier(RBF(2.0), **settings).fit(X, y).predict_proba(T)
    apart = np.abs(stream.predict_proba(T) - whole)
    # what is learned from 60 rows differs from what 90 say
    assert (apart.mean() < 0.1) if learns else (apart.max() < 1e-8)
    assert stream.n_samples_seen_ == 90


def test_weights_count_classes_of_rows_with_gaps(rng):
    X, y = make_classes(40, rng)
    weight = rng.integers(0, 3, 40)
    index = np.repeat(np.arange(40), weight)
    model = VBGPClassifier(RBF(2.0), learn_hyperparameters=False)
    weighted = clone(model).fit(X, y, sample_weight=weight).predict_proba(X)
    assert_allclose(weighted, model.fit(X[index], y[index]).predict_proba(X), rtol=1e-8)


def test_units_of_inputs_do_not_matter_to_classes_of_rows_with_gaps(rng):
    (X, y), (T, _) = make_classes(60, rng, share=0.0), make_data(9, rng)
    one, other = (
        VBGPClassifier(RBF(units), learn_hyperparameters=False)
        .fit(X * units, y)
        .predict_proba(T * units)
        for units in (np.ones(3), np.array([1.0, 1000.0, 0.1]))
    )
    assert_allclose(other, one, rtol=1e-6)


def test_far_away_classes_are_as_uncertain_as_before_with_gaps_too(rng):
    posterior = (
        VBGPClassifier(RBF(1.0), learn_hyperparameters=False)
        .fit(*make_classes(40, rng))
        ._state.posterior
    )
    place = np.array([1e3, 0.0, 0.0])
    ((_, expected),) = posterior._measure(np.array([[*place, 0.0, 0.0, 0.0]]))
    ((_, variance),) = posterior._measure(np.array([[*place, 0.0, 0.7, 0.0]]))
    assert_allclose(variance, expected)


def test_a_pipeline_passes_gaps_on(rng):
    from sklearn.preprocessing import StandardScaler

    X, y = make_data(60, rng)
    model = make_pipeline(StandardScaler(), make_model(kernel=RBF())).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))
