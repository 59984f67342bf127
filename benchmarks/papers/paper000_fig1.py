"""Paper 000, Fig. 1: q+(s) and q+(theta) of stochastic training approach those of exact training.

1,000 rows of aimpeak, 10 mini-batches (blocks), 50 inducing inputs at random rows, which both
trainings hold: with other inducing inputs, q(s) would be of other variables. The bound has several
optima, so exact training (L-BFGS in the place of scaled conjugate gradients) goes on from where
stochastic training has ended; where it ends from the same start is in the second table, which also
says how both ends predict 4,000 other rows. VBPIC
trains as VBPITC does; its expectations are over the same eight draws in both trainings, those of
VBDTC and VBFITC are in closed form.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
from common import load, scores
from figures import Options, Result

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor
from skvbgp._core.draws import quasi_normal
from skvbgp._core.gaussian import kl_terms
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp.base import Targets
from skvbgp.sgpr import _training
from skvbgp.sgpr._bound import Evaluation, Prior, Shared
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._memory import remember
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws

MODELS = {"VBDTC": VBDTCRegressor, "VBFITC": VBFITCRegressor, "VBPIC": VBPICRegressor}
N_ROWS, N_BLOCKS, N_INDUCING, N_DRAWS, N_TEST = 1000, 10, 50, 8, 4000


def run(options: Options) -> Result:
    n_selections, n_passes = (1, 60) if options.quick else (2, 250)
    X, y, _ = load(options.data, "aimpeak")
    averages, bounds = {}, []
    for name in MODELS:
        runs = [divergences(name, X, y, options.seed + k, n_passes) for k in range(n_selections)]
        averages[name] = np.mean([curve for curve, _ in runs], axis=0)
        bounds += [{"model": name, "selection": k, **run[1]} for k, run in enumerate(runs)]
    rows = []
    for passes in sorted({0, *np.geomspace(1, n_passes, 7).astype(int)}):
        row = {"passes": int(passes)}
        for name, curve in averages.items():
            row |= {f"{name} q(s)": curve[passes, 0], f"{name} q(theta)": curve[passes, 1]}
        rows.append(row)
    title = f"KL(q || q+), average over {n_selections} selections of rows"
    return Result(picture(averages), {title: rows, "Lower bound at the ends": bounds})


def divergences(name, X, y, seed, n_passes):
    """KL(q || q+) of q(s) and q(theta) after the first step and each pass, (passes + 1, 2).

    Also the lower bounds that the trainings reach, and how they predict other rows.
    """
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(y), N_ROWS, replace=False)
    others = rng.choice(np.setdiff1d(np.arange(len(y)), rows), N_TEST, replace=False)
    X_test, y_test, X, y = X[others], y[others], X[rows], y[rows]
    regressor = MODELS[name](inducing_inputs=X[:N_INDUCING], random_state=seed)
    if name == "VBPIC":
        regressor.set_params(n_blocks=N_BLOCKS, noise_kernel=None)
    regressor._read(X, reset=True)
    learner = regressor._learner()
    start = learner.start(X, Targets(y), np.random.RandomState(seed), None)
    model, parameters = start.model, start.parameters
    data = Data(X, y, model.coordinates, start.target)
    data, blocks = learner._divide(data, Targets(y), parameters.nu)
    rule = ClosedForm()
    if name == "VBPIC":
        rule = CommonDraws(quasi_normal(N_DRAWS, X.shape[1], start.seed))
    free = parameters.all_but("U")

    with steps_of_q() as steps:
        path = []  # (parameters, q(u)) after every pass

        def end_pass(make):
            path.append((make().parameters, steps[-1]))
            return False

        _training.solve_stochastic(
            model, parameters, data, rule,
            free=free, max_iter=n_passes, batch_size=N_ROWS // N_BLOCKS, learning_rate=0.2,
            natural_rate=0.03, tol=None, rng=np.random.RandomState(seed), end_pass=end_pass,
        )  # fmt: skip
        path.insert(0, (parameters, steps[0]))

    bound = _training.collapse_bound(model, data, rule)
    same_start, optimum = (
        _training.solve_full(
            bound, model, start,
            free=free, max_iter=2000, tol=1e-12,
        )
        for start in (parameters, path[-1][0])
    )  # fmt: skip
    batch = [data.rows(index) for index in data.groups()]
    draws = [rule(rows, None) for rows in batch]
    exact = optimum.parameters
    s = moments_of_s(exact, Evaluation(model, exact, batch, draws).optimal_q)
    curve = [
        (kl_gaussian(*s, *moments_of_s(parameters, q)), kl_theta(exact, parameters))
        for parameters, q in path
    ]
    bounds = {
        "exact, same start": same_start.values[-1],
        "stochastic": bound(path[-1][0])[0],
        "exact, from the end": bound(exact)[0],
    }
    for end, p in {"stochastic": path[-1][0], "exact": exact}.items():
        memory = remember(Shared(model, p), data, rule, n_jobs=None)
        state = replace(start, parameters=p, memory=memory, draw_rule=rule, blocks=blocks)
        mean, variance = learner.posterior(state).moments(X_test, True)
        test = scores(y_test, mean, np.sqrt(variance))
        bounds |= {f"RMSE, {end}": test["RMSE"], f"NLPD, {end}": test["NLPD"]}
    return np.array(curve), bounds


@contextmanager
def steps_of_q():
    """List that grows by q(u) after every step of the natural gradient."""
    steps = []

    def recorded(*args):
        steps.append(natural_gradient_step(*args))
        return steps[-1]

    with mock.patch.object(_training, "natural_gradient_step", recorded):
        yield steps


def moments_of_s(parameters, q):
    """Mean and covariance of s = L u: every q(theta) has an L of its own."""
    L = Prior(parameters).L
    return L @ q.mean, L @ q.covariance @ L.T


def kl_gaussian(mean, covariance, mean_plus, covariance_plus):
    """KL(N(mean, covariance) || N(mean_plus, covariance_plus))."""
    L, L_plus = np.linalg.cholesky(covariance), np.linalg.cholesky(covariance_plus)
    whitened = np.linalg.solve(L_plus, np.column_stack([L, mean - mean_plus]))
    log_ratio = np.sum(np.log(np.diag(L_plus) / np.diag(L)))
    return float(0.5 * (np.sum(whitened**2) - len(mean)) + log_ratio)


def kl_theta(parameters, parameters_plus):
    """KL(q(Lambda, sigma_f) || q+(Lambda, sigma_f))."""

    def moments(p):
        return np.append(p.nu, p.alpha), np.append(p.xi, p.beta)

    return float(kl_terms(*moments(parameters), *moments(parameters_plus))[0].sum())


def picture(averages):
    """The six panels of the paper in two: divergence of q(s), and of q(theta)."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for name, curve in averages.items():
        for axis, values in zip(axes, curve.T, strict=True):
            axis.plot(values, label=f"{name}+")
    for axis, of in zip(axes, [r"\mathbf{s}", r"\Lambda, \sigma_f"], strict=True):
        axis.set(yscale="log", xlabel="passes", ylabel=f"KL$(q({of})\\,||\\,q^+({of}))$")
        axis.legend()
    return figure
