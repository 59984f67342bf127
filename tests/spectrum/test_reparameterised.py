"""The gradient in M and b: against central differences, the literal twin, and the exact bound."""

import numpy as np
import pytest

from skvbgp import SVBSSGPRegressor
from skvbgp._optim.adam import AdamState
from skvbgp.spectrum._bound import sum_shifts, sum_statistics
from skvbgp.spectrum._gaussian import Gaussian, Prior, Structure
from skvbgp.spectrum._reparameterised import Reparameterised, adam_step, bound_gradient
from skvbgp.spectrum._rows import Rows
from tests.derivatives import numerical_gradient
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import POSTERIORS, make_data, small

M, D = 2, 2
LENGTH_SCALE, SIGNAL, NOISE = np.array([0.8, 1.7]), 1.3, 0.2
KNOWN = M, LENGTH_SCALE, SIGNAL, NOISE


@pytest.fixture
def rows(rng):
    return rng.standard_normal((7, D)), rng.standard_normal(7)


def affine(posterior, rng):
    """Some q by its M and b."""
    structure = Structure(M, D, posterior)
    factors = []
    for group in structure.groups:
        n = group.stop - group.start
        L = np.tril(0.1 * rng.standard_normal((n, n)), -1)
        factors.append(L + np.diag(rng.uniform(0.1, 0.3, n)))
    b = 0.4 * rng.standard_normal(structure.size)
    return Reparameterised(structure, b, tuple(factors), AdamState.zeros(0))


def gradient(q, rows, Z, prior=None):
    _, shifts = sum_shifts(q.structure, q.sample(Z), Rows(*rows))
    prior = prior or Prior.of(q.structure, LENGTH_SCALE, SIGNAL)
    return bound_gradient(q, prior, Z, shifts / NOISE)


def test_literal_gradient_of_a_draw(rng, rows):
    """Theorem 1, Apps. D and F: M need not be triangular."""
    size = M * (D + 2)
    M_full = 0.3 * rng.standard_normal((size, size)) + np.eye(size)
    b, z = 0.4 * rng.standard_normal(size), rng.standard_normal(size)
    dM, db = oracle.reparameterised_gradient(M_full, b, z, *rows, *KNOWN)
    expected = numerical_gradient(
        lambda M_: oracle.reparameterised_draw(M_, b, z, *rows, *KNOWN), M_full
    )
    np.testing.assert_allclose(dM, expected, rtol=1e-6, atol=1e-6)
    expected = numerical_gradient(
        lambda b_: oracle.reparameterised_draw(M_full, b_, z, *rows, *KNOWN), b
    )
    np.testing.assert_allclose(db, expected, rtol=1e-6, atol=1e-6)


def test_gradient_is_the_average_of_the_literal_one(rng, rows):
    """Exactly, over draws of mean 0 and covariance I, where the sampled divergence is its mean."""
    q = affine("joint", rng)
    root = np.sqrt(q.structure.size) * np.eye(q.structure.size)
    Z = np.concatenate([root, -root])
    db, (dM,) = gradient(q, rows, Z)
    twins = [oracle.reparameterised_gradient(q.M[0], q.mean, z, *rows, *KNOWN) for z in Z]
    np.testing.assert_allclose(dM, np.tril(np.mean([t[0] for t in twins], axis=0)), atol=1e-9)
    np.testing.assert_allclose(db, np.mean([t[1] for t in twins], axis=0), atol=1e-9)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.every_nth("posterior", 2)
def test_gradient_against_central_differences(rng, rows, posterior):
    """Of the average of log p(y | M z + b) over draws, less the divergence of what is uncertain."""
    q, Z = affine(posterior, rng), rng.standard_normal((4, M * (D + 2)))
    structure, prior = q.structure, Prior.of(q.structure, LENGTH_SCALE, SIGNAL)

    def bound(b, factors):
        moved = Reparameterised(structure, b, factors, q.adam)
        fits = [oracle.log_likelihood(a, *rows, M, NOISE) for a in moved.sample(Z)]
        return np.mean(fits) - moved.kl_to(prior)

    db, dM = gradient(q, rows, Z)
    expected = numerical_gradient(lambda b: bound(b, q.M), q.mean)
    if posterior == "point":  # theta has no divergence, but the prior's density
        R = structure.frequencies(expected)
        R -= structure.frequencies(prior.times_precision(q.mean))
    np.testing.assert_allclose(db, expected, rtol=1e-7, atol=1e-7)
    for k, found in enumerate(dM):

        def of_one(factor, k=k):
            return bound(q.mean, (*q.M[:k], np.tril(factor), *q.M[k + 1 :]))

        np.testing.assert_allclose(found, numerical_gradient(of_one, q.M[k]), rtol=1e-6, atol=1e-6)


@pytest.mark.thorough
def test_gradient_is_unbiased(rng):
    """Against central differences of the bound itself, which is an integral over alpha."""
    structure = Structure(1, 1, "joint")
    q = Reparameterised(
        structure,
        np.array([0.3, 0.5, -0.4]),
        (np.array([[0.1, 0.0, 0.0], [0.05, 0.2, 0.0], [-0.1, 0.04, 0.3]]),),
        AdamState.zeros(0),
    )
    X, y = rng.standard_normal((5, 1)), rng.standard_normal(5)
    scale = np.array([0.8])

    def exact(b, factor):
        return oracle.lower_bound(b, factor @ factor.T, X, y, 1, scale, SIGNAL, NOISE)

    prior = Prior.of(structure, scale, SIGNAL)
    results = [gradient(q, (X, y), rng.standard_normal((40, 3)), prior) for _ in range(200)]
    db, dM = (np.array([np.ravel(r[k]) for r in results]) for k in range(2))
    expected = [
        numerical_gradient(lambda b: exact(b, q.M[0]), q.mean),
        numerical_gradient(lambda L: exact(q.mean, np.tril(L)), q.M[0]).ravel(),
    ]
    for found, true in zip((db, dM), expected, strict=True):
        error = found.std(axis=0) / np.sqrt(len(found))
        assert np.all(np.abs(found.mean(axis=0) - true) <= 4.0 * error + 1e-6)


def test_shifts_are_those_of_the_natural_step(rng, rows):
    """One sum, with the Jacobian and without; rows that count several times, too."""
    structure, X_y = Structure(M, D, "joint"), Rows(*rows, rng.uniform(0.5, 3.0, 7))
    alphas = 0.5 * rng.standard_normal((3, structure.size))
    squared_error, shifts = sum_shifts(structure, alphas, X_y)
    statistics = sum_statistics(structure, alphas, X_y)
    assert squared_error == pytest.approx(statistics.squared_error, rel=1e-12)
    np.testing.assert_allclose(shifts.mean(axis=0), statistics.shift, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_both_forms_of_q_are_one_distribution(rng, posterior):
    q = affine(posterior, rng)
    again = Reparameterised.of(q.gaussian())
    np.testing.assert_allclose(again.mean, q.mean)
    for found, expected in zip(again.M, q.M, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert isinstance(again.gaussian(), Gaussian)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("moves", [True, False])
def test_a_step_goes_uphill_in_each_coordinate(rng, rows, posterior, moves):
    """Adam's first step has the sign of the gradient, and the size that it is given."""
    q = Reparameterised.of(affine(posterior, rng).gaussian())
    prior = Prior.of(q.structure, LENGTH_SCALE, SIGNAL)
    db, dM = gradient(q, rows, rng.standard_normal((4, q.structure.size)))
    moved = adam_step(q, prior, (db, dM), 0.01, moves_frequencies=moves)
    expected = 0.01 * np.sign(db) / np.sqrt(prior.precision)
    if not moves:
        q.structure.frequencies(expected)[:] = 0.0
    np.testing.assert_allclose(moved.mean - q.mean, expected, rtol=1e-5, atol=1e-12)
    for k, (before, after) in enumerate(zip(q.M, moved.M, strict=True)):
        if k not in q.structure.random_groups:
            np.testing.assert_array_equal(after, before)
            continue
        assert np.all(np.diagonal(after) > 0.0)
        ratio = np.log(np.diagonal(after) / np.diagonal(before))
        np.testing.assert_allclose(ratio, 0.01 * np.sign(np.diagonal(dM[k])), rtol=1e-5)
        row_size = np.sqrt(np.mean(before**2, axis=1, keepdims=True))
        below = np.tril(np.ones(before.shape), -1) > 0.0
        expected = (0.01 * row_size * np.sign(dM[k]))[below]
        np.testing.assert_allclose((after - before)[below], expected, rtol=1e-5)


# -- the estimator -----------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_adam_raises_the_bound(posterior):
    X, y = make_data(200)
    options = {"posterior": posterior, "objective": "bound", "solver": "adam"}
    short, long = (small(8, **options, max_iter=n).fit(X, y) for n in (1, 20))
    assert long.lower_bound_ > short.lower_bound_ + 30.0
    assert len(long.lower_bounds_) == 20
    natural = small(8, posterior=posterior, objective="bound", max_iter=20).fit(X, y)
    assert np.any(np.abs(natural.frequencies_ - long.frequencies_) > 1e-3)


def test_adam_holds_the_frequencies_of_the_blocks():
    X, y = make_data()
    natural, found = (small(solver=s, max_iter=2).fit(X, y) for s in ("natural", "adam"))
    np.testing.assert_array_equal(found.frequencies_, natural.frequencies_)
    assert np.any(np.abs(found.q_mean_ - natural.q_mean_) > 1e-3)


@pytest.mark.thorough
def test_adam_reaches_the_linear_model():
    """Frequencies held and certain, all rows in each step: where the natural step arrives."""
    X, y = make_data(120)
    options = {"posterior": "point", "learn_hyperparameters": False, "batch_size": len(y)}
    exact, found = (
        small(4, solver=s, max_iter=200, learning_rate=0.1, **options).fit(X, y)
        for s in ("natural", "adam")
    )
    np.testing.assert_array_equal(found.frequencies_, exact.frequencies_)
    np.testing.assert_allclose(found.q_mean_, exact.q_mean_, atol=1e-3 * np.std(y))
    assert found.lower_bound_ == pytest.approx(exact.lower_bound_, abs=0.5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divergence_of_adam_is_an_error():
    X, y = make_data()
    with pytest.raises(ValueError, match="smaller learning_rate"):
        small(objective="bound", solver="adam", learning_rate=100.0).fit(X, y)


@pytest.mark.filterwarnings("error")
def test_a_divergence_that_only_precisions_show_is_an_error():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(120)
    model = SVBSSGPRegressor(solver="adam", max_iter=3, learning_rate=1.0, random_state=0)
    with pytest.raises(ValueError, match="Adam has diverged on the bound"):
        model.fit(X, y)


def test_divergence_on_the_evidence_is_an_error():
    with pytest.raises(ValueError, match="on the evidence: take a smaller learning_rate"):
        small(learning_rate=1e3).fit(*make_data())


def test_a_stream_goes_on_with_the_moments_of_adam():
    X, y = make_data(1_100)
    model = small(solver="adam", objective="bound", max_iter=2).fit(X[:1_000], y[:1_000])
    n_steps = model._state.bound_adam.n_steps
    assert n_steps > 0
    model.partial_fit(X[1_000:], y[1_000:])
    assert model._state.bound_adam.n_steps > n_steps
    natural = small(objective="bound", max_iter=2).fit(X[:1_000], y[:1_000])
    assert natural._state.bound_adam is None
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.5 * np.std(y)
    assert np.all(std > 0.0)


def test_unknown_solver():
    X, y = make_data()
    with pytest.raises(ValueError, match="solver"):
        small(solver="lbfgs").fit(X, y)
