"""Missing entries of X as known noise, for regressors whose learners know nothing of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer

from skvbgp import (
    DecoupledGPRegressor,
    SVBSSGPRegressor,
    VBKSRegressor,
    VBPICRegressor,
    VBPITCRegressor,
    kernel_grammar,
)
from skvbgp.base import Gaps, _gap_noise, _gaps
from skvbgp.base._exact_process import ExactRows, learn_slopes, log_density, make_usual_kernel
from skvbgp.base._gap_noise import GapNoise, GivenRows
from tests.derivatives import numerical_gradient
from tests.fits import FitOnce
from tests.gaps import check_measured_slopes, make_data
from tests.oracles import gap_noise as oracle

KERNELS = kernel_grammar(1, base=("SE", "LIN"))
MODELS = {
    "SVBSSGP": SVBSSGPRegressor(15, max_iter=2, n_samples=5, random_state=0),
    "VBPITC": VBPITCRegressor(10, n_blocks=3, max_iter=2, random_state=0),
    "VBPIC": VBPICRegressor(10, n_blocks=3, max_iter=2, n_samples=3, random_state=0),
    "DecoupledGP": DecoupledGPRegressor(30, 15, max_iter=2, random_state=0),
    "VBKS": VBKSRegressor(KERNELS, max_iter=2, n_restarts=1, random_state=0),
}
#: Those that fit well enough to tell inputs that matter from others.
BETTER = {
    "SVBSSGP": SVBSSGPRegressor(40, max_iter=60, random_state=0),
    "VBPITC": VBPITCRegressor(40, n_blocks=3, max_iter=30, random_state=0),
    "VBPIC": VBPICRegressor(40, n_blocks=3, max_iter=30, random_state=0),
    "DecoupledGP": DecoupledGPRegressor(100, 50, max_iter=100, random_state=0),
    "VBKS": VBKSRegressor(KERNELS, random_state=0),
}
pytestmark = pytest.mark.usefixtures("quick_searches")


def every_model(test):
    """What gaps are to all, by default every second one."""
    test = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())(test)
    return pytest.mark.every_nth("model", 3)(test)


BLOCKED = ["VBPITC", "VBPIC"]


def but_blocked(models):
    """The same, but those with blocks, which take the longest."""
    marked = [
        pytest.param(model, marks=pytest.mark.thorough if name in BLOCKED else [], id=name)
        for name, model in models.items()
    ]

    def every_second(test):
        return pytest.mark.every_nth("model", 3)(pytest.mark.parametrize("model", marked)(test))

    return every_second


models, better = but_blocked(MODELS), but_blocked(BETTER)
#: VBKS learns in any case, and its rows fade.
refitted = but_blocked({name: one for name, one in MODELS.items() if name != "VBKS"})
fit_once = FitOnce()


def slopes_of(model):
    return model._gap_noise.slopes[:, 0]


def fill(model, X, slopes=None):
    """Rows without gaps, and what is known noise of these.

    To the last bit what the model has made of them, as training magnifies roundings.
    """
    filled, variance = model._gap_noise.gaps.fill(X)
    return filled, np.sum(variance * (slopes_of(model) if slopes is None else slopes), axis=1)


# -- the process that says how much a gap matters --------------------------------------------------


@pytest.mark.parametrize("owners", [(), (0, 1, 1)], ids=["numbers", "category"])
def test_log_density(owners, rng):
    """Literally, with every copy a row, up to the constants of the prior."""
    n, counts = 12, np.repeat([1, 2, 3], 4)
    X, S, known = rng.standard_normal((n, 3)), np.zeros((n, 2)), np.zeros(n)
    S[::3, 0], S[1::4, 1], known[::5] = 0.7, 0.4, 0.2
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
    rows, start = (
        ExactRows(X, y, counts.astype(float), known, S, owners),
        make_usual_kernel(3, owners),
    )
    x = np.array([0.3, 0.1, 0.6, 0.6, -2.0, -1.5, 0.4])
    copies = [np.repeat(part, counts, axis=0) for part in (X, S, y, known)]

    def expected(x):
        n_inputs, parts = 2 if owners else 3, (x[0], x[1:4], x[4], x[5:])
        value = oracle.log_density(*copies, *parts, n_inputs)
        prior = norm(0.5 * np.log(n_inputs), np.sqrt(0.5))
        constant = 3.0 * prior.logpdf(prior.mean()) + 2.0 * norm.logpdf(0.0)
        if owners:  # the length scale that two columns share is there once
            constant += prior.logpdf(x[2]) - prior.logpdf(prior.mean())
        return value - constant

    value, gradient = log_density(x, start, rows)
    assert_allclose(value, expected(x), rtol=1e-9)
    numerical = numerical_gradient(lambda x: log_density(x, start, rows)[0], x)
    if owners:
        numerical[2:4] = 0.5 * (numerical[2] + numerical[3])
    assert_allclose(gradient, numerical, atol=1e-6)


def test_slopes_are_those_of_the_function(rng):
    """Of y = 2 x_1 and nothing of x_2, where half of the rows lack one of the two."""
    n = 300
    X, missing = rng.standard_normal((n, 2)), np.zeros((n, 2), dtype=bool)
    missing[::4, 0], missing[1::4, 1] = True, True
    y = 2.0 * X[:, 0] + 0.1 * rng.standard_normal(n)
    filled, S = np.where(missing, 0.0, X), missing.astype(float)
    slopes = learn_slopes(ExactRows(filled, y / y.std(), gaps=S))
    assert_allclose(slopes[0] * y.var(), np.mean(y[::4] ** 2), rtol=0.3)
    assert slopes[1] < 0.05


@pytest.mark.parametrize("share", [0.0, 4.0])
def test_slopes_are_in_squared_units_of_the_target(share, rng):
    """And so is known noise, in half of the rows a share in the variance of y."""
    X, y = make_data(60, rng)
    variance = share * np.var(y) * rng.integers(0, 2, 60)
    one, other = (
        GapNoise.learn(GivenRows.of(X, *given), learns=True, owners=()).slopes
        for given in ((y, None, variance), (8.0 * y + 3.0, None, 64.0 * variance))
    )
    assert_allclose(other, 64.0 * one, rtol=1e-5)


# -- the estimators --------------------------------------------------------------------------------


@every_model
def test_rows_with_gaps_are_noisy_ones(model, rng):
    """Training and predictions are those of the filled rows, each with noise that is known."""
    X, y = make_data(60, rng)
    T, t = make_data(9, rng, share=0.0)
    T[::2, 1] = np.nan
    y_var = np.where(np.arange(60) % 3 == 0, 0.2, 0.0)
    model, plain = clone(model), clone(model)
    model.fit(X, y, y_var=y_var)
    filled, own = fill(model, X)
    expected, variance = Gaps.of(X).fill(X)
    assert_allclose(filled, expected, rtol=1e-6, atol=1e-9)
    assert_allclose(own, variance @ slopes_of(model), rtol=1e-6, atol=1e-9)
    assert np.all((own > 0.0) == np.isnan(X).any(axis=1))
    plain.fit(filled, y, y_var=own + y_var)
    assert model.lower_bound_ == pytest.approx(plain.lower_bound_, rel=1e-10)
    new, f_var = fill(model, T)
    for options in ({"return_std": True}, {"return_cov": True}):
        said, expected = model.predict(T, **options), plain.predict(new, **options, y_var=f_var)
        for ours, theirs in zip(said, expected, strict=True):
            assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)
    f_std, known = (
        m.predict(X, True, include_noise=False)[1] for X, m in ((T, model), (new, plain))
    )
    assert_allclose(f_std**2, known**2 + f_var, rtol=1e-8)
    expected = plain.log_predictive_density(new, t, y_var=f_var + 0.1)
    assert_allclose(model.log_predictive_density(T, t, y_var=0.1), expected, rtol=1e-8)
    said, expected = model.predict_interval(T), plain.predict_interval(new, y_var=f_var)
    assert_allclose(said, expected, rtol=1e-6)
    assert model.sample_y(T, 2).shape == (9, 2)


@pytest.mark.parametrize("name", ["SVBSSGP", "VBPITC", "VBPIC", "VBKS"])
@pytest.mark.every_nth("name", 2)
def test_rows_with_gaps_are_left_out(name, rng):
    X, y = make_data(60, rng)
    model, plain = fit_once(clone(MODELS[name]), X, y), clone(MODELS[name])
    filled, own = fill(model, X)
    expected = plain.fit(filled, y, y_var=own).loo_predict(filled, y, y_var=own)
    assert_allclose(model.loo_predict(X, y), expected, rtol=1e-6)
    some = slice(None) if name == "VBPITC" else slice(10, 20)  # which needs all rows of its blocks
    assert_allclose(model.loo_predict(X[some], y[some]), np.array(expected)[:, some], rtol=1e-6)


@better
@pytest.mark.thorough
def test_a_gap_matters_as_much_as_its_input(model, rng, monkeypatch):
    """The last input says nothing: no harm is done if it is missing."""
    monkeypatch.setattr("skvbgp.base._exact_process._MAX_ITER", 40)
    X, y = make_data(150, rng)
    model = clone(model).fit(X, y)
    slopes = slopes_of(model) / np.var(y)
    assert slopes[2] < 0.1 * slopes[:2].min()
    T, _ = make_data(50, rng, share=0.0)
    mean, std = model.predict(T, True)
    for j, low, high in ((0, 0.3, 2.0), (2, 0.0, 0.1)):
        gap = T.copy()
        gap[:, j] = np.nan
        other, wide = model.predict(gap, True)
        assert low < np.sqrt(np.mean(wide**2 - std**2)) < high
        assert low < np.sqrt(np.mean((other - mean) ** 2)) + 0.1 * low < 2.0 * high


@pytest.mark.thorough
@better
def test_slopes_of_inputs_without_gaps_are_measured(model, rng):
    check_measured_slopes(clone(model), rng)


@refitted
def test_hyperparameters_that_are_not_learned(model, rng):
    X, y = make_data(50, rng)
    X[:, 2] = np.nan_to_num(X[:, 2])
    model = clone(model).set_params(learn_hyperparameters=False).fit(X, y)
    assert_allclose(slopes_of(model), [0.3 * np.var(y), 0.3 * np.var(y), 0.0])


@pytest.mark.parametrize("of", [Gaps.of, Gaps.of_many])
def test_columns_whose_entries_are_between_those_looked_at_are_known(of, rng, monkeypatch):
    """Sensors that take turns, and one that hardly ever says something."""
    monkeypatch.setattr(_gaps, "_LEARNED_FROM", 50)
    X = 100.0 + rng.standard_normal((200, 3)) * [1.0, 5.0, 1.0]
    X[::2, 1], X[1::2, 0] = np.nan, np.nan
    X[np.arange(200) != 77, 2] = np.nan
    filled, variance = of(X).fill(np.full((1, 3), np.nan))
    assert_allclose(filled[0], 100.0, atol=5.0)
    assert_allclose(variance[0, :2], 1.0, atol=0.5)


@models
def test_streams_begin_again_while_rows_are_few(model, rng):
    """With twice the rows, or a gap in another column, they are fits to all of them."""
    X, y = make_data(40, rng)
    X[:32, 1] = np.where(np.isnan(X[:32, 1]), 0.5, X[:32, 1])
    X[35, 1] = np.nan
    weight = np.where(np.arange(40) == 3, 0.0, 1.0)
    stream = clone(model)
    for start in range(0, 32, 8):
        rows = slice(start, start + 8)
        stream.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    assert_array_equal(stream._gap_noise.gaps.columns, [True, False, True])
    assert stream._gap_noise.total == 31  # of 7 rows before, and of 15, but not of 23
    stream.partial_fit(X[32:], y[32:])
    assert_array_equal(stream._gap_noise.gaps.columns, [True, True, True])
    assert stream.n_samples_seen_ == 39
    fresh = clone(model).fit(X, y, sample_weight=weight)
    assert_allclose(stream.predict(X, True), fresh.predict(X, True), rtol=1e-8)


@models
def test_later_rows_of_a_stream_are_filled_by_what_is_known(model, rng, monkeypatch):
    """Beyond rows that are kept, by slopes that have been learned, or else are measured."""
    monkeypatch.setattr(_gap_noise, "_KEPT_ROWS", 59)
    X, y = make_data(80, rng)
    X[:60, 1] = np.where(np.isnan(X[:60, 1]), 0.5, X[:60, 1])
    stream, plain = clone(model).fit(X[:60], y[:60]), clone(model)
    noise = stream._gap_noise
    filled, own = fill(stream, X[:60])
    plain.fit(filled, y[:60], y_var=own)
    slopes = slopes_of(stream).copy()
    slopes[1] = noise.gaps.measure_slope(1, filled, plain.predict)
    new, own = fill(stream, X[60:], slopes)
    assert np.isnan(X[60:, 1]).any() and slopes[1] > 0.0
    stream.partial_fit(X[60:], y[60:])
    assert stream._gap_rows is None
    assert_array_equal(stream._gap_noise.slopes[:, 0], slopes)  # as they were then
    assert stream._gap_noise.gaps.gaussian is noise.gaps.gaussian
    plain.partial_fit(new, y[60:], y_var=own)
    assert_allclose(stream.predict(filled, True), plain.predict(filled, True), rtol=1e-7)


@pytest.mark.parametrize("name", ["SVBSSGP", "VBPIC", "VBKS"])
@pytest.mark.every_nth("name", 3)
def test_rows_that_bring_the_first_gap_late_are_left_out(name, rng, monkeypatch):
    """The noise that they were learned with is found again."""
    monkeypatch.setattr(_gap_noise, "_KEPT_ROWS", 59)
    X, y = make_data(80, rng)
    X[:60] = np.where(np.isnan(X[:60]), 0.5, X[:60])
    given = {"gamma": 0} if name == "SVBSSGP" else {}
    stream = clone(MODELS[name]).set_params(**given).fit(X[:60], y[:60])
    stream.partial_fit(X[60:], y[60:])
    assert np.isfinite(stream.loo_predict(X, y)).all()


@refitted
def test_a_stream_that_forgets_is_a_fit_to_the_rows_that_count(model, rng):
    X, y = make_data(60, rng)
    model = clone(model).set_params(forgetting=40)
    stream = clone(model).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    fresh = clone(model).fit(X[20:], y[20:])
    assert_allclose(stream.predict(X, True), fresh.predict(X, True), rtol=1e-8)


@models
def test_a_call_that_fails_changes_nothing(model, rng):
    X, y = make_data(40, rng)
    model = fit_once(clone(model), X, y)
    before, expected = dict(vars(model)), model.predict(X, True)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.where(np.isnan(X), np.inf, X), y)
    bad = np.where(np.arange(40) == 0, 1e300, y)
    with pytest.raises(ValueError):
        model.partial_fit(X, bad)
    assert vars(model) == before
    assert_array_equal(model.predict(X, True), expected)


@models
def test_copies_of_rows_with_gaps_are_weights(model, rng):
    X, y = make_data(60, rng)
    weight = np.repeat([1, 2], 30)
    expected = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    model = clone(model).fit(X, y, sample_weight=weight)
    assert_allclose(slopes_of(model), slopes_of(expected), rtol=1e-6)
    assert_allclose(model.predict(X, True), expected.predict(X, True), rtol=1e-5)


@models
def test_a_row_that_does_not_count_may_lack_what_no_other_lacks(model, rng):
    X, y = make_data(60, rng)
    X[:, 2] = rng.standard_normal(60)
    X[5, 2], weight = np.nan, np.where(np.arange(60) == 5, 0.0, 1.0)
    kept = np.flatnonzero(weight)
    expected = clone(model).fit(X[kept], y[kept]).predict(X, True)
    found = clone(model).fit(X, y, sample_weight=weight).predict(X, True)
    assert_allclose(found, expected, rtol=1e-8)


@models
def test_outputs_have_slopes_of_their_own(model, rng):
    X, y = make_data(60, rng)
    other = np.where(np.arange(60) % 4 == 0, np.nan, 3.0 * np.nan_to_num(X[:, 2]))
    both = clone(model).fit(X, np.column_stack([y, other]))
    alone = fit_once(clone(model), X, y)
    assert_allclose(both._gap_noise.slopes[:, 0], slopes_of(alone))
    assert both._gap_noise.slopes[2, 1] > 2.0 * both._gap_noise.slopes[0, 1]
    mean, std = both.predict(X, True)
    expected = alone.predict(X, True)
    assert_allclose([mean[:, 0], std[:, 0]], expected, rtol=1e-8)


@pytest.mark.parametrize("parameters", [{"replay": 0}, {"likelihood": "student_t"}])
def test_where_no_rows_are_kept_or_noise_is_not_known_there_are_no_gaps(parameters, rng):
    X, y = make_data(60, rng)
    whole = np.nan_to_num(X)
    model = clone(MODELS["DecoupledGP"]).set_params(**parameters)
    with pytest.raises(ValueError, match="contains NaN"):
        clone(model).fit(X, y)
    model.fit(whole, y)
    assert model._gap_rows is None and model._gap_noise is None
    model.set_params(replay=100, likelihood="gaussian")
    for call in (model.predict, model.partial_fit):
        with pytest.raises(ValueError, match="the parameters of the fit did not take"):
            call(X, *([y] if call == model.partial_fit else []))


def test_kernels_of_rows_that_fade_have_no_gaps(rng):
    X, y = make_data(20, rng)
    with pytest.raises(ValueError, match="contains NaN"):
        clone(MODELS["VBKS"]).set_params(forgetting=0.9).partial_fit(X, y)


def test_logarithms_have_no_gaps(rng):
    X, y = make_data(20, rng)
    y = np.exp(y)
    model = clone(MODELS["VBKS"]).set_params(transforms=["log"])
    with pytest.raises(ValueError, match="missing entries of X"):
        clone(model).fit(X, y)
    model.fit(np.nan_to_num(X), y)
    assert np.isfinite(model.predict(X, True)).all()
    for call in (model.partial_fit, model.log_predictive_density):
        with pytest.raises(ValueError, match="missing entries of X"):
            call(X, y)


@every_model
def test_few_rows_with_gaps(model, rng):
    """Of columns, too, that have no entry at all; and rows without any."""
    X, y = make_data(12, rng, share=0.3)
    X[:, 1] = np.nan
    X[4] = np.nan
    model = clone(model).fit(X, y)
    assert np.isfinite(model.predict(X, True)).all()
    mean, std = model.predict(np.full((2, 3), np.nan), True)
    assert np.isfinite(mean).all() and np.all(std > 0.3 * np.std(y))


@models
def test_functions_are_asked_for_at_known_places(model, rng):
    X, y = make_data(60, rng)
    model = fit_once(clone(model), X, y)
    assert model.feature_importances_.shape == (3,)
    draws = model.sample_function(2)
    assert draws(np.nan_to_num(X)).shape == (60, 2)
    for say in (draws, model.predict_gradient):
        with pytest.raises(ValueError, match="NaN"):
            say(X)


@models
def test_new_rows_of_dask_have_gaps(model, rng):
    da = pytest.importorskip("dask.array")
    X, y = make_data(40, rng)
    model = fit_once(clone(model), X, y)
    assert_allclose(model.predict(da.from_array(X)).compute(), model.predict(X), rtol=1e-8)


@pytest.mark.thorough
@better
def test_predictions_are_better_than_behind_imputers(model, rng):
    X, y = make_data(300, rng)
    T, t = make_data(200, rng)

    def measure_nlpd(X, T):
        return -np.mean(clone(model).fit(X, y).log_predictive_density(T, t))

    ours = measure_nlpd(X, T)
    for imputer in (SimpleImputer(), IterativeImputer(random_state=0)):
        assert ours < measure_nlpd(imputer.fit_transform(X), imputer.transform(T)) - 0.1


@models
def test_streams_begin_again_by_weights(model, rng):
    """A row of weight three is three rows, also where it is asked whether rows have doubled."""
    X, y = make_data(30, rng)
    weight = np.where(np.arange(30) < 20, 1, 3)
    one, other = clone(model), clone(model)
    for rows in (np.arange(20), np.arange(20, 30)):
        copies = np.repeat(rows, weight[rows])
        one.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
        other.partial_fit(X[copies], y[copies])
    assert one._gap_noise.total == other._gap_noise.total == 50
    assert_allclose(one.predict(X, True), other.predict(X, True), rtol=1e-6)
