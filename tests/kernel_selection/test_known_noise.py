"""Known noise of rows: it adds to the learned one, whether rows have weights or not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import (
    Comparison,
    Evaluation,
    Prior,
    collapsed_bound,
    log_evidence,
    parameters,
    total_statistics,
)
from skvbgp.kernel_selection._scales import DataScales, Frame, weigh_known
from skvbgp.kernel_selection._series import list_series_kernels
from skvbgp.kernel_selection._targets import make_targets
from skvbgp.kernels._pairs import Pairs
from tests.derivatives import numerical_gradient
from tests.kernel_selection.cases import KERNELS, make_series, small
from tests.kernel_selection.problems import kernel_at, make_rows
from tests.kernel_selection.test_bound import matrices, some_q
from tests.oracles import kernel_selection as oracle
from tests.oracles.decoupled import weighted_log_evidence
from tests.weights import (
    assert_same,
    check_predictions,
    check_streams_of_copies,
    draw_weights,
)

COUNTS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 1.0, 0.01, 1.2, 5.0, 0.5, 1.7, 0.9])
KNOWN = np.array([0.0, 0.5, 2.0, 0.1, 0.0, 9.0, 0.3, 0.0, 1.0, 0.2, 4.0, 0.6])

kernels = pytest.mark.parametrize("name", ["SE", "PER * (SE + LIN)"])
counted = pytest.mark.parametrize("counts", [None, COUNTS], ids=["rows", "weighted"])
maybe_known = pytest.mark.parametrize("known", [0.0 * KNOWN, KNOWN], ids=["learned", "known"])


def tell(y, counts, known):
    """Targets of rows, of which no noise is known where all of it is zero."""
    return Targets(y, counts, variance=known if known.any() else None)


# -- the parts of the model --------------------------------------------------------------------


@kernels
@counted
@maybe_known
@pytest.mark.every_nth("name", 2)
def test_evidence_and_its_gradient(name, counts, known):
    kernel, x = kernel_at(name)
    X, y, _ = make_rows()
    targets = tell(y, counts, known)
    value, gradient = log_evidence(kernel, x, Pairs(X), targets)
    fitted, noise = parameters(kernel, x)
    weight = np.ones(12) if counts is None else counts
    assert_allclose(value, weighted_log_evidence(y, fitted(X), noise + known, weight), rtol=1e-10)
    assert_allclose(Comparison(X, targets).bounds(kernel, [x])[0], value, rtol=1e-10)
    expected = numerical_gradient(lambda x: log_evidence(kernel, x, Pairs(X), targets)[0], x)
    assert_allclose(gradient, expected, rtol=1e-7, atol=1e-7)


@kernels
@counted
@maybe_known
@pytest.mark.every_nth("name", 2)
def test_bound_at_any_q_and_its_gradient(name, counts, known):
    """Every row has its own term: the sum of eq. (9) for one row after the other."""
    kernel, x = kernel_at(name)
    X, y, Z = make_rows()
    q = some_q(len(Z))

    def evaluation(x, factor=1.0):
        return Evaluation(Prior(kernel, x, Z), X, tell(y, counts, known), factor)

    weight = np.ones(12) if counts is None else counts
    total, moments = -q.kl_to_prior, (q.mean, q.covariance)
    for i in range(12):
        Kxz, K, diagonal, noise = matrices(kernel, x, X[i : i + 1], Z)
        own = Kxz, K, diagonal, noise + known[i]
        bound = oracle.local_bound(*own, y[i : i + 1], *moments)
        total += weight[i] * (bound + q.kl_to_prior)
    assert_allclose(evaluation(x).statistics.bound(q), total, rtol=1e-9)
    expected = numerical_gradient(lambda x: evaluation(x, 3.0).statistics.bound(q), x)
    assert_allclose(evaluation(x, 3.0).gradient(q), expected, rtol=1e-5, atol=1e-6)


@maybe_known
def test_bound_at_all_rows_is_the_evidence(known):
    kernel, x = kernel_at("SE")
    X, y, _ = make_rows()
    targets = tell(y, COUNTS, known)
    evidence, _ = log_evidence(kernel, x, Pairs(X), targets)
    assert_allclose(collapsed_bound(kernel, x[None], X, X, targets)[0], evidence, atol=1e-5)


@counted
def test_what_all_rows_share_is_a_learned_variance(counts):
    kernel, x = kernel_at("RQ + LIN")
    X, y, Z = make_rows()
    more, shared = np.append(x[:-1], np.log(np.exp(x[-1]) + 0.4)), np.full(12, 0.4)
    told, learned = (
        Evaluation(Prior(kernel, at, Z), X, Targets(y, counts, variance=known)).statistics
        for at, known in ((x, shared), (more, None))
    )
    for one, other in zip(told, learned, strict=True):
        assert_allclose(one, other, rtol=1e-12)
    evidence = Comparison(X, Targets(y, counts, variance=shared)).bounds(kernel, [x])[0]
    assert_allclose(
        evidence, Comparison(X, Targets(y, counts)).bounds(kernel, [more])[0], rtol=1e-12
    )


@maybe_known
@pytest.mark.every_nth("known", 2)
def test_gradient_over_draws_of_theta(known):
    kernel, x = kernel_at("RQ + LIN")
    X, y, Z = make_rows()
    points, targets = (
        x + 0.2 * np.random.default_rng(2).normal(size=(3, len(x))),
        tell(y, COUNTS, known),
    )
    _, gradient = collapsed_bound(kernel, points, Z, X, targets)
    expected = numerical_gradient(lambda p: collapsed_bound(kernel, p, Z, X, targets)[0], points)
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_statistics_of_chunks_in_other_units(monkeypatch):
    kernel, x = kernel_at("SE")
    X, y, Z = make_rows()
    target, plain = (make_targets(["identity"], Targets(y), normalize=n)[0] for n in (True, False))
    scaled = Targets(target.scaled(y), COUNTS, variance=KNOWN)
    rows = [(target, Targets(y, COUNTS, variance=target.unit**2 * KNOWN)), (plain, scaled)]
    monkeypatch.setattr("skvbgp.kernel_selection._bound._CHUNK_ROWS", 5)
    totals = [
        total_statistics(X, y, Frame(np.zeros(1), np.ones(1), target), Z, kernel, x[None])
        for target, y in rows
    ]
    for one, other in zip(*totals, strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_an_outlier_that_is_known_to_be_one_hides_no_period():
    X, y = make_series(80)
    known, bad = np.zeros(80), [10, 30, 60]
    y[bad], known[bad] = [200.0, -300.0, 250.0], 1e10
    plain, told = (DataScales.of(X, Targets(y, variance=v)) for v in (None, known))
    assert abs(plain.periods[0, 0] - 1.5) > 0.1
    assert_allclose(told.periods[0, 0], 1.5, rtol=0.05)
    names = [dict(list_series_kernels(X, Targets(y, variance=v))) for v in (None, known)]
    assert "PER" not in str(list(names[0]))
    assert "LIN + W + PER * M32" in names[1]


def test_noise_that_all_rows_share_hides_nothing():
    X, y = make_series()
    for weight in (None, np.linspace(0.5, 2.0, 60)):
        told, plain = Targets(y, weight, variance=np.full(60, 3.0)), Targets(y, weight)
        assert_array_equal(weigh_known(told), plain.counts)
        assert repr(list_series_kernels(X, told)) == repr(list_series_kernels(X, plain))


# -- the estimator -----------------------------------------------------------------------------

OPTIONS = {
    "exact": {"n_inducing": None},
    "inducing": {},
    "batches": {"batch_size": 16, "max_iter": 2},
    "gaussian": {"hyperparameter_posterior": "gaussian", "kernels": KERNELS[:1]},
    "series": {"kernels": "auto", "n_inducing": None, "n_trained": 1, "top_k": 2},
}
every = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


@every
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("options", 3)
def test_every_training_sees_it(options):
    """A row of which next to nothing is known is about as one that is not there."""
    X, y = make_series(40)
    y_var, spoiled = np.where(np.arange(40) % 4 == 3, 1e8, 0.0), y.copy()
    spoiled[y_var > 0.0] = 3.0 + y.mean()
    model = small(**{**options, "normalize_y": False})
    told, plain = clone(model).fit(X, spoiled, y_var=y_var), clone(model).fit(X, spoiled)
    kept = y_var == 0.0
    errors = [np.mean((m.predict(X[kept]) - y[kept]) ** 2) for m in (told, plain)]
    assert errors[0] < errors[1]


def test_noise_of_y_is_not_added_to_what_is_said_of_logarithms():
    X, y = make_series(40)
    model = small(transforms=["log"], kernels=KERNELS[:1], max_iter=1).fit(X, y + 5.0 - y.min())
    assert np.all(model.predict(X, True, y_var=1.0)[1] > model.predict(X, True)[1])
    with pytest.raises(ValueError, match="logarithms of y"):
        model.predict_interval(X, y_var=1.0)


@pytest.mark.parametrize("options", [{"kernels": KERNELS[:1]}, OPTIONS["gaussian"]])
@pytest.mark.every_nth("options", 2)
def test_a_weight_is_so_many_copies(options, rng, monkeypatch, unmerged):
    """At fixed hyperparameters: those of a fit, after which rows are added to sums."""
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 30)
    X, y = make_series(70)
    y_var, (weight, copies) = rng.uniform(0.0, 2.0, 70), draw_weights(rng, 30)
    models = [small(max_iter=2, **options).fit(X[:36], y[:36], y_var=y_var[:36]) for _ in range(2)]
    models[0].partial_fit(X[40:], y[40:], sample_weight=weight, y_var=y_var[40:])
    models[1].partial_fit(X[40:][copies], y[40:][copies], y_var=y_var[40:][copies])
    assert_allclose(*(model.local_lower_bounds_ for model in models), rtol=1e-8)
    assert_same(*models, X, rtol=1e-8)


@pytest.mark.thorough
@every
@pytest.mark.usefixtures("quick_searches")
def test_training_cannot_tell_a_weight_from_copies(options, rng):
    X, y = make_series(40)
    y_var = rng.uniform(0.0, 2.0, 40)
    model = small(**{"max_iter": 3, **options})

    class Told(type(model)):
        def partial_fit(self, X, y, sample_weight=None):
            place = [np.flatnonzero(series == one)[0] for one in y]
            return super().partial_fit(X, y, sample_weight, y_var[place])

    series = y
    told = Told(**model.get_params(deep=False))
    check_streams_of_copies(told, [X, X + 5.0, X], y, rng, ("local_lower_bounds_", "lower_bound_"))


@pytest.mark.parametrize("n_inducing", [None, 30])
@pytest.mark.every_nth("n_inducing", 2)
def test_what_is_known_is_not_learned(n_inducing):
    """Rows of two qualities: the learned noise is that of the good ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (150, 1))
    y_var = np.where(rng.uniform(size=150) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + np.sqrt(0.01 + y_var) * rng.standard_normal(150)
    model = small(n_inducing=n_inducing, kernels=KERNELS[:1])
    told, plain = clone(model), clone(model)
    for rows in np.split(np.arange(150), 2):
        told.partial_fit(X[rows], y[rows], y_var=y_var[rows])
        plain.partial_fit(X[rows], y[rows])
    noises = [m.estimators_[0].noise_variance for m in (told, plain)]
    assert noises[0] < 0.05 < 0.3 < noises[1]
    T = np.linspace(-3.0, 3.0, 50)[:, None]
    errors = [np.mean((m.predict(T) - np.sin(T[:, 0])) ** 2) for m in (told, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_few_rows_are_an_exact_process_with_noise_of_their_own(rng):
    X, y = make_series(40)
    weight, y_var = rng.uniform(0.5, 3.0, 40), rng.uniform(0.0, 2.0, 40)
    model = small(n_inducing=None, normalize_y=False, kernels=KERNELS[:1])
    model.fit(X, y, sample_weight=weight, y_var=y_var)
    part, origin = model.estimators_[0], np.average(X, axis=0, weights=weight)
    K = part.kernel(X - origin)
    C = K + np.diag((part.noise_variance + y_var) / weight)
    assert_allclose(part.predict(X), K @ np.linalg.solve(C, y), rtol=1e-5)
    expected = weighted_log_evidence(y, K, part.noise_variance + y_var, weight)
    assert_allclose(model.local_lower_bounds_[0], expected, rtol=1e-6)


# -- logarithms of y ---------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_searches")
def test_a_series_with_known_noise_has_no_logarithms():
    X, y = make_series(30)
    model = small(kernels="auto", n_inducing=None)
    assert "log" in clone(model).fit(X, y).transforms_
    told = clone(model).fit(X[:25], y[:25], y_var=0.1)
    assert set(told.transforms_) == {"identity"}
    assert set(told.partial_fit(X[25:], y[25:]).transforms_) == {"identity"}
    plain = clone(model).fit(X[:25], y[:25])
    before = plain.predict(X)
    with pytest.raises(ValueError, match="has learned logarithms of y"):
        plain.partial_fit(X[25:], y[25:], y_var=0.1)
    assert_array_equal(plain.predict(X), before)
    again = clone(model).fit(X[:10], y[:10]).partial_fit(X[10:], y[10:], y_var=0.1)
    assert set(again.transforms_) == {"identity"}  # twice as many rows are searched anew


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("transforms", [["log"], ["identity", "log"]])
@pytest.mark.every_nth("transforms", 2)
@pytest.mark.thorough
def test_logarithms_have_no_known_noise(transforms):
    X, y = make_series(30)
    model = small(transforms=transforms, max_iter=1)
    for call in (model.fit, clone(model).fit(X, y).partial_fit):
        with pytest.raises(ValueError, match="a variance of y, and of no logarithm"):
            call(X, y, y_var=0.1)
    model.fit(X, y)
    check_predictions(model, X)  # an error of y adds to what any transform says of y
