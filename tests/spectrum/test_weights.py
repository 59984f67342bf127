"""Weights of rows: a weight is so many copies, zero leaves out, and fractions count as such."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp.spectrum import SVBSSGPRegressor
from skvbgp.spectrum._block_model import SharedRows, evidence_gradient
from skvbgp.spectrum._bound import expected_squared_error, sum_statistics
from skvbgp.spectrum._features import features
from skvbgp.spectrum._gaussian import Structure
from skvbgp.spectrum._neighbours import Neighbours
from skvbgp.spectrum._rows import BlockedRows, Rows
from tests.derivatives import numerical_gradient
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import INSTANCES, POSTERIORS, D, M, condition, given_all, make_data, small
from tests.spectrum.test_bound import unit_frame
from tests.spectrum.test_regressor import KNOWN
from tests.weights import (
    assert_same,
    check_streams_of_copies,
    draw_weights,
)

TIMES = np.array([1, 2, 3, 1, 1, 4, 2, 1, 1, 2, 1, 3])
FRACTIONS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 1.0, 0.01, 1.2, 5.0, 0.5, 1.7, 0.9])

sizes = pytest.mark.parametrize("n", [4, 12])  # fewer and more rows than features


def weighted(rng, weight):
    return Rows(rng.standard_normal((12, D)), rng.standard_normal(12), weight.astype(float))


def repeated(rows):
    """Literal copies."""
    index = np.repeat(np.arange(len(rows)), rows.weight.astype(int))
    return Rows(rows.X[index], rows.y[index])


# -- the parts of the model --------------------------------------------------------------------


@sizes
def test_evidence_of_a_block_is_that_of_its_copies(rng, R, n):
    rows = weighted(rng, TIMES).take(slice(n))
    copies = repeated(rows)
    found, expected = (evidence_gradient(r, R, 1.3, 0.2) for r in (rows, copies))
    assert_allclose(found.value, oracle.log_evidence(copies.X, copies.y, R, 1.3, 0.2), rtol=1e-10)
    assert_allclose(found.R, expected.R, rtol=1e-9, atol=1e-11)
    assert_allclose(found[2:], expected[2:], rtol=1e-9)


@sizes
def test_evidence_of_fractions_and_its_gradients(rng, R, n):
    rows = weighted(rng, FRACTIONS).take(slice(n))

    def evidence(R, signal_variance, noise_variance):
        data = rows.X, rows.y, rows.weight
        return oracle.weighted_log_evidence(*data, R, signal_variance, noise_variance)

    found = evidence_gradient(rows, R, 1.3, 0.2)
    assert_allclose(found.value, evidence(R, 1.3, 0.2), rtol=1e-10)
    expected = numerical_gradient(lambda R: evidence(R, 1.3, 0.2), R)
    assert_allclose(found.R, expected, rtol=1e-6, atol=1e-8)
    logs = np.log([1.3, 0.2])
    expected = numerical_gradient(lambda logs: evidence(R, *np.exp(logs)), logs)
    assert_allclose(found[2:], expected, rtol=1e-6)


@sizes
@pytest.mark.parametrize("kind", [SharedRows, Neighbours])
def test_local_conditional_is_that_of_the_copies(rng, R, n, kind):
    rows, X_new = weighted(rng, TIMES).take(slice(n)), rng.standard_normal((5, D))
    copies, local = repeated(rows), given_all(kind, rows)
    given = copies.X, copies.y, R, np.zeros(2 * M), 0.0, 1.3, 0.2
    expected = [oracle.test_conditional(x, *given) for x in X_new]
    Phi = features(X_new, R)
    for full in (False, True):
        mean, spread = condition(local, Phi, R, full=full)
        variance = np.diag(spread) if full else spread
        assert_allclose(np.column_stack([mean, variance]), expected, rtol=1e-8)
    near = np.tile(np.arange(len(copies)), (5, 1))
    covariance = oracle.neighbour_errors(X_new, copies.X, near, R, 1.3, 0.2)
    assert_allclose(spread, covariance, rtol=1e-8, atol=1e-10)


def test_errors_of_neighbours_in_common_are_those_of_their_copies(rng, R):
    rows, X_new = weighted(rng, TIMES), rng.standard_normal((5, D))
    copies, starts = repeated(rows), np.cumsum(TIMES) - TIMES
    near = np.array([oracle.nearest(x, rows.X, 4) for x in X_new])
    local = Neighbours.of(rows, near)
    _, covariance = condition(local, features(X_new, R), R, full=True)
    near_copies = [np.concatenate([starts[i] + np.arange(TIMES[i]) for i in own]) for own in near]
    expected = oracle.neighbour_errors(X_new, copies.X, near_copies, R, 1.3, 0.2)
    assert_allclose(covariance, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_sums_over_rows_are_those_of_the_copies(rng, posterior):
    rows, structure = weighted(rng, TIMES), Structure(M, D, posterior)
    alphas = 0.5 * rng.standard_normal((3, structure.size))
    found, expected = (sum_statistics(structure, alphas, r) for r in (rows, repeated(rows)))
    assert_allclose(found.squared_error, expected.squared_error, rtol=1e-11)
    assert_allclose(found.shift, expected.shift, rtol=1e-9, atol=1e-10)
    for one, other in zip(found.curvatures, expected.curvatures, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-10)
    error = expected_squared_error(structure, alphas, rows)
    assert_allclose(error, expected.squared_error, rtol=1e-11)


def test_a_weight_multiplies_a_rows_term(rng):
    """Of the bound; a row without weights has weight 1."""
    rows, structure = weighted(rng, FRACTIONS), Structure(M, D, "joint")
    alpha = 0.5 * rng.standard_normal(structure.size)

    def value(alpha):
        return sum(
            w * oracle.log_likelihood(alpha, x[None], y[None], M, 0.2)
            for x, y, w in zip(rows.X, rows.y, rows.weight, strict=True)
        )

    found = sum_statistics(structure, alpha[None], rows)
    assert_allclose(found.shift / 0.2, numerical_gradient(value, alpha), rtol=1e-7)
    plain = Rows(rows.X[:3], rows.y[:3])
    both = Rows.joined([plain, rows.take(slice(3, 12))])
    assert_array_equal(both.weight, np.append(np.ones(3), FRACTIONS[3:]))
    assert both.total == pytest.approx(3.0 + FRACTIONS[3:].sum())
    assert Rows.joined([plain, plain]).weight is None


def test_minibatches_of_weighted_rows_are_unbiased(rng):
    rows, structure = weighted(rng, FRACTIONS), Structure(M, D, "joint")
    alphas = 0.5 * rng.standard_normal((2, structure.size))
    blocks = BlockedRows.of(rows, *unit_frame(D), 6)
    parts = [
        sum_statistics(structure, alphas, Rows.joined(batch)).times(factor)
        for batch, factor in blocks.minibatches(4, np.random.RandomState(0))
    ]
    assert len(parts) == 3
    full = sum_statistics(structure, alphas, rows)
    assert_allclose(np.mean([part.squared_error for part in parts]), full.squared_error)
    assert_allclose(np.mean([part.shift for part in parts], axis=0), full.shift)
    assert blocks.total == pytest.approx(FRACTIONS.sum())


def test_a_weight_stays_with_its_row_when_blocks_are_divided():
    X, y = make_data(600)
    frame = unit_frame(2)
    rows = BlockedRows.of(Rows(X[:40], y[:40]), *frame, 4)  # blocks of ten rows
    for start in range(40, 600, 40):
        new = slice(start, start + 40)
        rows = rows.add(Rows(X[new], y[new], np.abs(y[new]) if start % 80 else None))
    assert rows.n_blocks > 30
    weight = np.where(np.arange(600) // 40 % 2, np.abs(y), 1.0)
    found = rows.all_rows
    assert_array_equal(found.weight[np.argsort(found.y)], weight[np.argsort(y)])
    assert rows.total == pytest.approx(weight.sum())


# -- the estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("n_neighbors", [None, 1000])
@pytest.mark.every_nth("n_neighbors", 2)
@pytest.mark.every_nth("gamma", 3)
def test_a_weight_is_so_many_copies(posterior, gamma, n_neighbors, rng, unmerged):
    X, y = make_data(40)
    weight, copies = draw_weights(rng, 40)
    options = {"posterior": posterior, "gamma": gamma, "n_neighbors": n_neighbors}
    model = small(4, n_blocks=1, learn_hyperparameters=False, **options)  # copies are not parted
    expected = clone(model).fit(X[copies], y[copies])
    assert_same(model.fit(X, y, sample_weight=weight), expected, X + 0.1)
    assert model.n_samples_seen_ == np.sum(weight > 0)
    assert expected.n_samples_seen_ == weight.sum()


@pytest.mark.parametrize("objective", ["blocks", "bound"])
@pytest.mark.every_nth("objective", 2)
def test_a_weight_is_so_many_copies_to_training(objective, rng, unmerged):
    X, y = make_data(40)
    weight, copies = draw_weights(rng, 40)
    model = small(4, n_blocks=1, n_neighbors=None, objective=objective)
    expected = clone(model).fit(X[copies], y[copies])
    assert_same(model.fit(X, y, sample_weight=weight), expected, X + 0.1, rtol=1e-6)
    assert_allclose(model.noise_variance_, expected.noise_variance_, rtol=1e-6)
    assert_allclose(model.lower_bounds_, expected.lower_bounds_, rtol=1e-6)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("options", [{}, {"objective": "bound"}, {"n_neighbors": 5}])
@pytest.mark.in_turn("posterior")
@pytest.mark.every_nth("options", 2)
@pytest.mark.every_nth("posterior", 3)
def test_training_cannot_tell_a_weight_from_copies(posterior, options, rng):
    """Wherever rows are picked: mini-batches, blocks and neighbours."""
    X, y = make_data(60)
    model = small(posterior=posterior, **options)
    check_streams_of_copies(model, [X, X + 0.2, X[:, ::-1]], y, rng)


def test_weights_of_one_are_none_and_zero_leaves_out():
    X, y = make_data(60)
    weight = np.append(np.ones(50), np.zeros(10))
    model, expected = small().fit(X, y, sample_weight=weight), small().fit(X[:50], y[:50])
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model.lower_bound_ == expected.lower_bound_
    model.partial_fit(X[:10], y[:10], sample_weight=weight[45:55])
    expected.partial_fit(X[:5], y[:5])
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model.n_samples_seen_ == 55


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_weight_is_so_many_copies_to_a_stream(posterior, rng, unmerged):
    X, y = make_data(70)
    weight, copies = draw_weights(rng, 20)
    options = {"learn_hyperparameters": False, "n_neighbors": None, "posterior": posterior}
    model, expected = (small(4, n_blocks=1, **options).fit(X[:50], y[:50]) for _ in range(2))
    model.partial_fit(X[50:], y[50:], sample_weight=weight)
    expected.partial_fit(X[50:][copies], y[50:][copies])
    assert_same(model, expected, X + 0.1)


def test_a_weight_is_so_many_copies_of_any_calls():
    X, y = make_data(90)
    y, weight = y - 10.0, np.tile([1, 2, 3, 0, 2, 1], 15)
    model, stream = (small(gamma=1.0, max_iter=1, n_blocks=1, **KNOWN) for _ in range(2))
    for rows in (slice(70), slice(70, 90)):
        model.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    stream.partial_fit(X[:70], y[:70], sample_weight=weight[:70])  # the same origin of X
    for times in (1, 2, 3):
        rows = np.flatnonzero((weight >= times) & (np.arange(90) >= 70))
        stream.partial_fit(X[rows], y[rows])
    assert_allclose(model.predict(X), stream.predict(X), rtol=1e-8, atol=1e-8)
    assert_allclose(model.q_chol_, stream.q_chol_, rtol=1e-7, atol=1e-9)


def test_a_stream_of_few_rows_keeps_their_weights():
    """It begins again with all of them."""
    X, y = make_data(48)
    weight = np.append(np.repeat([0.5, 3.0, 1.5], 8), np.ones(24))
    model = small(warm_start=True).fit(X[:16], y[:16], sample_weight=weight[:16])
    model.partial_fit(X[16:24], y[16:24], sample_weight=weight[16:24])
    model.partial_fit(X[24:], y[24:])
    expected = small().fit(X, y, sample_weight=weight)
    assert model.n_iter_ == expected.n_iter_ and model.n_samples_seen_ == 48
    assert_allclose(model.predict(X), expected.predict(X), atol=1e-6 * y.std())
    assert_allclose(model.lower_bound_, expected.lower_bound_, rtol=1e-6)


@pytest.mark.parametrize("estimator", INSTANCES, ids=range(len(INSTANCES)))
@pytest.mark.every_nth("estimator", 2)
def test_scikit_learns_check(estimator):
    check_sample_weight_equivalence_on_dense_data("SVBSSGPRegressor", clone(estimator))


@pytest.mark.slow
def test_scikit_learns_check_of_the_default_model():
    """With fewer passes: all of them, for as many frequencies of ten inputs, take two minutes."""
    model = SVBSSGPRegressor(max_iter=3)
    check_sample_weight_equivalence_on_dense_data("SVBSSGPRegressor", model)
