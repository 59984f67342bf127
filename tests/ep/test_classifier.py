"""EPDTCClassifier as its users meet it."""

import copy
import pickle

import numpy as np
import pytest
from joblib import parallel_backend
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array
from scipy.special import ndtr
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as sk
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import EPDTCClassifier
from skvbgp._core import row_methods
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._inputs import Inputs
from skvbgp.kernels import RBF, Constant, Matern
from tests.ep.cases import make_labels
from tests.ep.problems import APPROXIMATIONS
from tests.observer import Recorder
from tests.oracles import ep as oracles

each = pytest.mark.parametrize("approximation", APPROXIMATIONS)


def small(**parameters):
    return EPDTCClassifier(**{"n_inducing": 10, "max_iter": 8, "random_state": 0, **parameters})


def fixed(X, **parameters):
    """Hyperparameters and inducing inputs that no data change."""
    kernel = 1.5 * RBF([1.0, 2.0])
    return small(kernel=kernel, inducing_inputs=X[:8], learn_hyperparameters=False, **parameters)


def assert_same_model(a, b, X, atol=1e-8):
    assert_allclose(b.predict_proba(X), a.predict_proba(X), atol=atol)
    assert_allclose(
        b.log_marginal_likelihood_value_, a.log_marginal_likelihood_value_, atol=100.0 * atol
    )


# -- the model -----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_at_the_rows_it_is_dense_ep():
    X, y = make_labels(60)
    kernel = 3.0 * RBF([0.4, 0.8])
    model = EPDTCClassifier(kernel=kernel, inducing_inputs=X, learn_hyperparameters=False).fit(X, y)
    t = 2.0 * y - 1.0
    tau, nu, _, _, evidence = oracles.dense_ep(kernel(X), t, oracles.tilted_probit)
    assert_allclose(model.site_precision_, tau, atol=1e-6)
    assert_allclose(model.site_mean_ * model.site_precision_, nu, atol=1e-6)
    assert_allclose(model.log_marginal_likelihood_value_, evidence, atol=1e-6)
    X_new, _ = make_labels(20, seed=1)
    mean, variance = oracles.predict(kernel(X), kernel(X_new, X), kernel.diag(X_new), tau, nu)
    score = mean / np.sqrt(1.0 + variance)
    assert_allclose(model.decision_function(X_new), score, atol=1e-6)
    assert_allclose(model.predict_proba(X_new)[:, 1], ndtr(score), atol=1e-6)
    assert_array_equal(model.predict(X_new), (score > 0.0).astype(int))


@each
def test_far_from_the_rows_a_label_is_as_uncertain_as_before(approximation):
    X, y = make_labels()
    model = fixed(X, approximation=approximation).fit(X, y)
    posterior = model._learner().posterior(model._state)
    far = posterior.parameters.complete(Inputs(np.full((1, 2), 1e3), np.zeros((1, 2))))
    mean, variance = posterior.latent.moments(far)
    assert_allclose([mean.item(), variance.item()], [0.0, 1.5], atol=1e-8)


@each
@pytest.mark.every_nth("approximation", 2)
def test_schedules_and_damping_do_not_change_the_result(approximation):
    X, y = make_labels(40)
    model = fixed(X, approximation=approximation).fit(X, y)
    for parameters in ({"schedule": "sequential"}, {"damping": 0.5, "max_ep_iter": 500}):
        other = clone(model).set_params(**parameters).fit(X, y)
        assert_same_model(model, other, X)


@pytest.mark.slow
def test_defaults_beat_the_laplace_approximation_with_one_length_scale():
    """On a set where the columns differ in what they say."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:200, ::3]
    y = y[:200]
    peer = make_pipeline(StandardScaler(), GaussianProcessClassifier(1.0 * sk.RBF(2.0)))
    losses = {
        name: -cross_validate(model, X, y, cv=3, scoring="neg_log_loss")["test_score"].mean()
        for name, model in [("ep", EPDTCClassifier(50, random_state=0)), ("laplace", peer)]
    }
    assert losses["ep"] < losses["laplace"] + 0.005


@each
@pytest.mark.every_nth("approximation", 2)
def test_learning_raises_the_evidence(approximation):
    X, y = make_labels(80)
    start = small(approximation=approximation, learn_hyperparameters=False).fit(X, y)
    model = small(approximation=approximation, max_iter=40).fit(X, y)
    gain = model.log_marginal_likelihood_value_ - start.log_marginal_likelihood_value_
    assert gain > 1.0
    assert start.n_iter_ == 1 and model.n_iter_ > 1


def test_fitted_attributes():
    X, y = make_labels(40)
    model = small().fit(X, y)
    assert model.inducing_inputs_.shape == (10, 2)
    assert model.kernel_(X).shape == (40, 40)
    assert model.site_precision_.shape == model.site_mean_.shape == (40,)
    assert np.all(model.site_precision_ > 0.0)
    assert np.all(np.sign(model.site_mean_) == 2.0 * y - 1.0)
    assert isinstance(model.log_marginal_likelihood_value_, float)
    assert_array_equal(model.observed_features_, True)


def test_kernels_of_scikit_learn_and_other_kernels():
    X, y = make_labels(40)
    ours = small(kernel=1.0 * RBF(1.0, isotropic=True)).fit(X, y)
    theirs = small(kernel=1.0 * sk.RBF(1.0)).fit(X, y)
    assert_same_model(ours, theirs, X, atol=1e-5)
    assert small(kernel=Constant(2.0) * Matern(nu=2.5)).fit(X, y).score(X, y) >= 0.7


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.every_nth("approximation", 2)
def test_a_kernel_that_has_nothing_free_is_taken(approximation):
    X, y = make_labels(60)
    kernel = RBF(1.0, length_scale_bounds="fixed", isotropic=True)
    for learn in (True, False):
        model = small(kernel=kernel, approximation=approximation, learn_inducing_inputs=learn)
        assert model.fit(X, y).score(X, y) >= 0.7


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.thorough) for s in (1, 2, 3))]
)
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.every_nth("approximation", 2)
def test_sites_that_move_one_by_one_and_slowly_are_finite(approximation, seed):
    """Those that other hyperparameters have left are no sites of f."""
    rng = np.random.RandomState(seed)
    X = rng.randn(20, 2)
    y = (X[:, 0] + 0.4 * rng.randn(20) > 0.0).astype(int)
    model = small(approximation=approximation, schedule="sequential", damping=0.5).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_restarts_find_at_least_the_first_optimum():
    X, y = make_labels(60)
    first, more = small().fit(X, y), small(n_restarts=2).fit(X, y)
    assert more.log_marginal_likelihood_value_ >= first.log_marginal_likelihood_value_ - 1e-3
    assert more.n_iter_ > first.n_iter_


@pytest.mark.parametrize("learn", [True, False, None])
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.every_nth("approximation", 2)
@pytest.mark.every_nth("learn", 2)
def test_whether_inducing_inputs_are_learned(approximation, learn):
    """In the rounds after the first."""
    X, y = make_labels(60)
    start = X[:6]
    model = small(
        approximation=approximation,
        inducing_inputs=start,
        learn_inducing_inputs=learn,
        max_iter=30,
    ).fit(X, y)
    expected = approximation == "dtc" if learn is None else learn
    assert np.any(model.inducing_inputs_ != start) == expected


@pytest.mark.parametrize("n_given", [20, pytest.param(25, marks=pytest.mark.thorough)])
def test_given_inducing_inputs_are_learned_even_if_they_are_as_many_as_rows(n_given):
    X, y = make_labels(20)
    start = make_labels(n_given, seed=1)[0]
    model = small(inducing_inputs=start, learn_inducing_inputs=True, max_iter=30).fit(X, y)
    assert np.any(model.inducing_inputs_ != start)
    chosen = small(n_inducing=n_given, learn_inducing_inputs=True, max_iter=30).fit(X, y)
    assert_allclose(np.sort(chosen.inducing_inputs_, axis=0), np.sort(X, axis=0))


def test_inducing_inputs_are_not_learned_alone():
    X, y = make_labels(40)
    with pytest.raises(ValueError, match="needs learn_hyperparameters"):
        small(learn_hyperparameters=False, learn_inducing_inputs=True).fit(X, y)


def test_warm_start_goes_on():
    X, y = make_labels(60)
    model = small(warm_start=True, max_iter=3).fit(X, y)
    before = model.log_marginal_likelihood_value_
    model.fit(X, y)
    assert model.log_marginal_likelihood_value_ > before
    with pytest.raises(ValueError, match="X has 1 features, but the fit before had 2"):
        model.fit(X[:, :1], y)


def test_a_warm_start_adds_inducing_inputs_while_there_is_room():
    X, y = make_labels(60)
    model = small(warm_start=True, n_inducing=30, max_iter=1).fit(X[:20], y[:20])
    known = model.inducing_inputs_
    assert len(known) == 20
    model.fit(X, y)
    assert len(model.inducing_inputs_) == 30
    assert_array_equal(model.inducing_inputs_[:20], known)


def test_an_unconverged_ep_is_reported():
    X, y = make_labels(40)
    with pytest.warns(ConvergenceWarning, match="max_ep_iter"):
        fixed(X, max_ep_iter=2).fit(X, y)


def test_more_than_two_classes():
    X, y = load_iris(return_X_y=True)
    names = np.array(["c", "a", "b"])[y]
    model = small(n_inducing=20).fit(X, names)
    probabilities = model.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert model.score(X, names) > 0.95
    assert model.inducing_inputs_.shape == (20, 4)
    assert model.site_precision_.shape == model.site_mean_.shape == (3, 150)
    assert model.log_marginal_likelihood_value_.shape == (3,)
    rigid = fixed(X[:, :2]).fit(X[:, :2], names)
    one = clone(rigid).fit(X[:, :2], names == "a")  # the sites of a class are its own
    assert_allclose(one.decision_function(X[:, :2]), rigid.decision_function(X[:, :2])[:, 0])


def test_classes_share_kernel_and_inducing_inputs(monkeypatch):
    """So that their covariances are computed once, and callbacks see every iteration."""
    X, y = load_iris(return_X_y=True)
    stopper, priors = Recorder(stop_after=5), []

    def count(*arguments):
        priors.append(SparsePrior(*arguments))
        return priors[-1]

    monkeypatch.setattr("skvbgp.ep._bound.SparsePrior", count)
    model = small().set_callbacks(stopper).fit(X[::2], y[::2])
    assert model.n_iter_ == len(stopper.models) == 5
    assert len(priors) < 20
    assert model.kernel_ == stopper.models[-1].kernel_ != stopper.models[0].kernel_


def test_n_jobs_changes_nothing(monkeypatch):
    X, y = load_iris(return_X_y=True)
    monkeypatch.setattr("skvbgp.ep._posterior._TASK_ROWS", 40)
    model = small(max_iter=4).fit(X[::2], y[::2])
    expected = model.predict_proba(X)
    with parallel_backend("threading"):
        assert_array_equal(model.set_params(n_jobs=2).predict_proba(X), expected)


def test_pickle_and_determinism():
    X, y = make_labels(40, missing=0.2)
    model = small().fit(X, y)
    expected = model.predict_proba(X)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), expected)
    assert_array_equal(clone(model).fit(X, y).predict_proba(X), expected)
    row_by_row = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(40)])
    assert_allclose(row_by_row, expected, atol=1e-10)


# -- uncertain and missing inputs ----------------------------------------------------------------


@each
@pytest.mark.every_nth("approximation", 2)
def test_input_variances_to_zero(approximation):
    X, y = make_labels(40)
    certain = small(approximation=approximation).fit(X, y)
    for X_var in (np.zeros_like(X), np.full_like(X, 1e-13)):
        almost = small(approximation=approximation).fit(X, y, X_var=X_var)
        assert_allclose(almost.predict_proba(X, X_var=X_var), certain.predict_proba(X), atol=2e-3)
        rigid = fixed(X, approximation=approximation).fit(X, y, X_var=X_var)
        assert_same_model(rigid, fixed(X, approximation=approximation).fit(X, y), X, atol=1e-7)


@pytest.mark.parametrize("kind", [csr_array, pytest.param(coo_array, marks=pytest.mark.thorough)])
def test_sparse_variances_are_those_of_the_dense_ones(kind, monkeypatch):
    """Beside sparse rows, of which blocks are predicted at a time, and dense ones."""
    X, y = make_labels(40)
    X_var = np.where(X > 0.5, 0.3, 0.0)
    dense = small().fit(X, y, X_var=X_var)
    expected = dense.predict_proba(X, X_var=X_var)
    for rows in (X, kind(X)):
        sparse = small(forgetting=1000).partial_fit(rows, y, np.unique(y), kind(X_var))
        assert_array_equal(sparse.predict_proba(rows, X_var=kind(X_var)), expected)
    monkeypatch.setattr(row_methods, "_BLOCK_ENTRIES", 7 * 2)
    assert_allclose(dense.predict_proba(kind(X), X_var=kind(X_var)), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="X_var has 39 rows, but X has 40"):
        dense.predict_proba(kind(X), X_var=kind(X_var[1:]))
    assert np.all(np.isfinite(sparse.partial_fit(kind(X), y, None, kind(X_var)).site_mean_))


def test_uncertain_inputs_give_less_certain_predictions():
    X, y = make_labels(60)
    model = small().fit(X, y)
    p = model.predict_proba(X)
    blurred = model.predict_proba(X, X_var=np.full_like(X, 1.0))
    assert np.mean(np.abs(blurred - 0.5)) < np.mean(np.abs(p - 0.5))
    everything = model.predict_proba(X, X_var=np.full_like(X, 1e12))
    assert_allclose(everything, everything[:1].repeat(60, axis=0), atol=1e-3)


def test_predictions_average_over_the_input(rng):
    """For a function that is known, the Gaussian of f is what it is over draws of x."""
    X, y = make_labels(60)
    model = small().fit(X, y)
    draws = X[0] + np.sqrt([0.3, 0.6]) * rng.standard_normal((40_000, 2))
    average = model.predict_proba(draws)[:, 1].mean()
    closed = model.predict_proba(X[:1], X_var=[[0.3, 0.6]])[0, 1]
    assert abs(closed - average) < 0.03


def test_metadata_routing():
    X, y = make_labels(40)
    X_var = np.full_like(X, 0.5)
    model = small(max_iter=3)
    direct = clone(model).fit(X, y, X_var=X_var).predict_proba(X, X_var=X_var)
    with config_context(enable_metadata_routing=True):
        model = model.set_fit_request(X_var=True).set_predict_proba_request(X_var=True)
        pipeline = make_pipeline(model).fit(X, y, X_var=X_var)
        assert_array_equal(pipeline.predict_proba(X, X_var=X_var), direct)
    assert np.max(np.abs(direct - small(max_iter=3).fit(X, y).predict_proba(X))) > 0.01


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.every_nth("learn", 2)
def test_a_column_that_is_always_missing_changes_nothing(learn):
    X, y = make_labels(40, missing=0.2)
    with_column = np.insert(X, 1, np.nan, axis=1)
    model = small(learn_hyperparameters=learn).fit(X, y)
    other = clone(model).fit(with_column, y)
    assert_array_equal(other.observed_features_, [True, False, True])
    assert_array_equal(other.predict_proba(with_column), model.predict_proba(X))
    assert other.log_marginal_likelihood_value_ == model.log_marginal_likelihood_value_
    assert_array_equal(other.inducing_inputs_, model.inducing_inputs_)
    with_column[:, 1] = 7.0  # unknown to the model
    assert_array_equal(other.predict_proba(with_column), model.predict_proba(X))


def test_missing_entries_may_occur_only_in_prediction():
    X, y = make_labels(200, d=3)
    model = small(max_iter=30).fit(X, y)
    incomplete = X.copy()
    incomplete[:, 0] = np.nan
    p = model.predict_proba(incomplete)[:, 1]
    base_rate = log_loss(y, np.full(200, y.mean()))
    assert log_loss(y, model.predict_proba(X)[:, 1]) < log_loss(y, p) < base_rate + 0.1


@pytest.mark.parametrize("refine", ["column", "entry", None])
@pytest.mark.every_nth("refine", 2)
def test_what_training_learns_of_missing_entries(refine):
    """And what becomes of it with more rows, and in the next fit."""
    X, y = make_labels(60, missing=0.3)
    model = small(n_inducing=5, refine=refine, max_iter=8, warm_start=True)
    model.partial_fit(X[:50], y[:50], classes=[0, 1])
    p = model._state.start.parameters
    missing = np.isnan(X[:50])
    refined = p.refinement.refine(p.columns.condition(model._state.inputs), missing)
    moved = refined.mean != p.columns.condition(model._state.inputs).mean
    assert_array_equal(moved, missing & (refine is not None))
    new = Inputs(X[50:], np.zeros((10, 2)))
    shifted = np.any(p.complete(new).mean != p.columns.condition(new).mean)
    assert shifted == (refine == "column")
    model.partial_fit(X[50:], y[50:])
    after = model._state.start.parameters
    both = after.refinement.refine(after.columns.condition(model._state.inputs), np.isnan(X))
    assert_array_equal(both.mean[:50], refined.mean)
    assert_array_equal(both.mean[50:], p.complete(new).mean)
    model.fit(X, y)  # from the kernel before, with other rows
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="'refine' parameter"):
        small(refine="row").fit(X, y)


@pytest.mark.thorough
def test_entries_of_their_own_fit_the_training_rows_better():
    X, y = make_labels(40, missing=0.3)
    models = [small(n_inducing=5, refine=r, max_iter=30).fit(X, y) for r in (None, "entry")]
    evidence = [model.log_marginal_likelihood_value_ for model in models]
    assert evidence[0] < evidence[1] - 1.0


@pytest.mark.thorough
def test_missing_inputs_against_mean_imputation():
    """Correlated columns: the others tell what is missing."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((400, 2))
    X = latent[:, [0, 0, 1, 1]] + 0.3 * rng.standard_normal((400, 4))
    y = (rng.uniform(size=400) < ndtr(3.0 * np.sin(2.0 * latent[:, 0]) + latent[:, 1])).astype(int)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    model = EPDTCClassifier(30, random_state=0, max_iter=40)
    losses = [
        log_loss(y[200:], m.fit(X[:200], y[:200]).predict_proba(X[200:]))
        for m in (model, make_pipeline(SimpleImputer(), clone(model)))
    ]
    assert losses[0] < losses[1]


# -- more rows -----------------------------------------------------------------------------------


@each
@pytest.mark.every_nth("approximation", 2)
def test_chunks_in_any_order_equal_one_fit(approximation):
    X, y = make_labels(50)
    whole = fixed(X, approximation=approximation).fit(X, y)
    for order in ([0, 1, 2], [2, 0, 1]):
        model = fixed(X, approximation=approximation)
        chunks = np.array_split(np.arange(50), 3)
        for k in order:
            model.partial_fit(X[chunks[k]], y[chunks[k]], classes=[0, 1])
        assert_same_model(whole, model, X)


def test_hyperparameters_stay_and_new_sites_join():
    X, y = make_labels(60)
    model = small().fit(X[:40], y[:40])
    kernel, Z = model.kernel_, model.inducing_inputs_
    model.partial_fit(X[40:59], y[40:59]).partial_fit(X[59:], y[59:])
    assert model.kernel_ == kernel
    assert_array_equal(model.inducing_inputs_, Z)
    assert model.site_precision_.shape == (60,)


def test_inducing_inputs_grow_up_to_their_number():
    X, y = make_labels(60)
    model = small(learn_hyperparameters=False).partial_fit(X[:4], y[:4], classes=[0, 1])
    first = model.inducing_inputs_
    model.partial_fit(X[4:60], y[4:60])
    assert first.shape == (4, 2) and model.inducing_inputs_.shape == (10, 2)
    assert_array_equal(model.inducing_inputs_[:4], first)


def test_rows_seen_before_are_no_new_inducing_inputs():
    X, y = make_labels(6)
    model = small(learn_hyperparameters=False, n_inducing=20)
    model.partial_fit(X, y, classes=[0, 1]).partial_fit(X, y)
    assert model.inducing_inputs_.shape == (6, 2)
    assert model.site_precision_.shape == (12,)


def test_inducing_inputs_are_learned_by_dtc_alone():
    X, y = make_labels(60)
    for approximation, learned in [("dtc", True), ("fitc", False)]:
        model = small(approximation=approximation, inducing_inputs=X[:8]).fit(X, y)
        distance = np.max(np.abs(model.inducing_inputs_ - X[:8]))
        assert (distance > 0.01) == learned, approximation
        assert learned or distance == 0.0


def test_rows_one_by_one():
    X, y = make_labels(6, missing=0.2)
    model = small(max_iter=3)
    for i in range(6):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=[0, 1])
    assert model.site_precision_.shape == (6,)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.every_nth("missing", 2)
def test_rows_at_one_place_decide_nothing(missing):
    """They have no spread to take units from: the next rows start the training anew."""
    X, y = make_labels(40, missing=missing)
    model = small().partial_fit(X[:1], y[:1], classes=[0, 1]).partial_fit(X[1:], y[1:])
    assert_same_model(small().fit(X, y), model, X)


@pytest.mark.parametrize("first", ["few", "one class", "constant column", "empty column"])
@pytest.mark.every_nth("first", 4)
def test_rows_that_say_little_do_not_set_the_hyperparameters(first):
    X, y = make_labels(80)
    order = np.argsort(y, kind="stable") if first == "one class" else np.arange(80)
    n = 20 if first == "few" else 35
    X, y = X[order], y[order]
    X[:n, 1] = {"constant column": 1.0, "empty column": np.nan}.get(first, X[:n, 1])
    model = small().partial_fit(X[:n], y[:n], classes=[0, 1]).partial_fit(X[n:], y[n:])
    assert_same_model(small().fit(X, y), model, X)
    learned = model.kernel_
    assert model.partial_fit(X[:5], y[:5]).kernel_ == learned


def test_new_rows_with_variances():
    X, y = make_labels(60)
    X_var = np.full((60, 2), 0.4)
    whole = fixed(X).fit(X, y, X_var=X_var)
    parts = fixed(X).fit(X[:30], y[:30], X_var=X_var[:30])
    parts.partial_fit(X[30:], y[30:], X_var=X_var[30:])
    assert_same_model(whole, parts, X)


def test_a_failed_partial_fit_leaves_the_model_as_it_was():
    X, y = make_labels(40)
    model = small().fit(X, y)
    before = copy.deepcopy(vars(model))
    expected = model.predict_proba(X)
    for bad_X, bad_y in [(X[:, :1], y), (np.full_like(X, np.inf), y), (X, y + 5)]:
        with pytest.raises(ValueError):
            model.partial_fit(bad_X, bad_y)
    assert vars(model).keys() == before.keys()
    assert_array_equal(model.predict_proba(X), expected)


# -- callbacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_restarts", [0, 2])
@pytest.mark.every_nth("n_restarts", 2)
def test_callbacks_see_every_iteration_and_may_stop(n_restarts):
    X, y = make_labels(60)
    stopper = Recorder(stop_after=3)
    model = small(n_restarts=n_restarts).set_callbacks(stopper).fit(X, y)
    assert [m.n_iter_ for m in stopper.models] == [1, 2, 3]
    assert model.n_iter_ == 3
    assert stopper.models[0].kernel_ != stopper.models[-1].kernel_ == model.kernel_
    assert_allclose(stopper.models[-1].predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_callbacks_without_learning():
    X, y = make_labels(60)
    stopper = Recorder()
    small(learn_hyperparameters=False).set_callbacks(stopper).fit(X, y)
    assert len(stopper.models) == 1
