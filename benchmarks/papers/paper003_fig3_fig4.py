"""Paper 003, Figs. 3 (b) and 4 (b): RMSE of VBKS and of other ways to choose a kernel.

In the place of temperatures over time and place (IEQ) stand speeds over time and place, rows of
AIMPEAK. Kernels of the grammar to level 3, 144 of them; 64 inducing inputs, point estimates of the
hyperparameters. Compared are, as in Sec. 6.2,

- VBKS: the average over the ten kernels of highest belief; VBKS-s: the best of them alone;
- random: one kernel at random, here the mean and the standard deviation over all of them;
- BO: Bayesian optimisation of the evidence, after Malkomes and Garnett; the best kernel so far
  predicts. A Gaussian process learns the evidence from kernels whose evidence is known; two
  kernels are near if they make similar distributions of the function at 100 rows (the paper:
  200), hyperparameters being drawn from a log-normal; the expected improvement chooses the next.

What is ours: "random search", the best of some random kernels; the cost is the number of kernels
that have been trained, of which VBKS trains all, and not time; the evidence is the bound of VBKS,
so that all choose from the same models, which are trained once, by L-BFGS on all rows.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from common import load_split, scores
from figures import Options, Result
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skvbgp import VBKSRegressor, kernel_grammar

N_INDUCING, TOP_K = 64, 10
N_DISTANCE_ROWS, N_DRAWS, NOISE = 100, 4, 0.01
N_RUNS, N_FIRST = 20, 3


def run(options: Options) -> Result:
    n, n_test, depth = (500, 500, 2) if options.quick else (1_500, 2_000, 3)
    X, y, X_test, y_test = take(load_split(options.data, "aimpeak", 0), n, n_test, options.seed)
    kernels = kernel_grammar(depth)
    model = VBKSRegressor(
        kernels, n_inducing=N_INDUCING, n_trained=None, top_k=len(kernels), n_restarts=1,
        random_state=options.seed, n_jobs=2,
    ).fit(X, y)  # fmt: skip
    singles = {name: None for name, _ in kernels}
    for single in model.estimators_:
        singles[single.name] = scores(y_test, *single.predict(X_test, return_std=True))
    fitted = [i for i, (name, _) in enumerate(kernels) if singles[name] is not None]
    values = model.local_lower_bounds_[fitted] / len(y)
    errors = np.array([singles[kernels[i][0]]["RMSE"] for i in fitted])

    rng = np.random.default_rng(options.seed)
    features = embed_kernels([kernels[i][1] for i in fitted], X, rng)
    most = len(fitted) // 2
    orders = [rng.permutation(len(fitted))[:most] for _ in range(N_RUNS)]
    by_order = {
        "BO": [optimise(features, values, order[:N_FIRST], most) for order in orders],
        "random search": orders,
    }
    curves = {
        name: np.array([errors[best_so_far(values, order)] for order in orders])
        for name, orders in by_order.items()
    }
    model.prune(TOP_K)
    average = scores(y_test, *model.predict(X_test, return_std=True))
    best = singles[model.best_kernel_[0]]
    rows = [
        {"method": "VBKS", "kernels trained": len(kernels), "RMSE": average["RMSE"], "std": None},
        {"method": "VBKS-s", "kernels trained": len(kernels), "RMSE": best["RMSE"], "std": None},
        {"method": "random", "kernels trained": 1, "RMSE": errors.mean(), "std": errors.std()},
    ]
    rows += [
        {"method": name, "kernels trained": t, "RMSE": c[:, t - 1].mean(), "std": c[:, t - 1].std()}
        for name, c in curves.items()
        for t in (N_FIRST, 6, 12, 24, 48)
        if t <= most
    ]
    order = np.argsort(-values)[:TOP_K]
    beliefs = [
        {"kernel": kernels[fitted[i]][0], "L per row": values[i], "RMSE": errors[i]} for i in order
    ]
    figure = draw(curves, average["RMSE"], best["RMSE"], errors.mean())
    return Result(figure, {"RMSE on AIMPEAK": rows, "The kernels of highest bound": beliefs})


def take(split, n, n_test, seed):
    """Random rows of a split."""
    X, y, X_test, y_test = split
    rng = np.random.default_rng(seed)
    known, new = rng.permutation(len(y))[:n], rng.permutation(len(y_test))[:n_test]
    return X[known], y[known], X_test[new], y_test[new]


def embed_kernels(kernels, X, rng):
    """Features (K, K) of kernels, whose distances are those of what functions they expect.

    Each is the mean, over hyperparameters, of the square root of the density of function values at
    some rows, so that the distance of two with known hyperparameters is that of Hellinger.
    """
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = X[rng.choice(len(X), min(N_DISTANCE_ROWS, len(X)), replace=False)]
    kernels = [kernel.bind(X.shape[1]) for kernel in kernels]
    normal = rng.standard_normal((N_DRAWS, max(len(kernel.theta) for kernel in kernels)))
    draws = [draw_covariances(kernel, X, normal) for kernel in kernels]  # K of (S, n, n)
    gram = np.array([[mean_affinity(a, b) for b in draws] for a in draws])
    values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    return vectors * np.sqrt(np.maximum(values, 0.0))


def draw_covariances(kernel, X, normal):
    """Covariances of unit average variance, and a little noise, at drawn hyperparameters."""
    result = []
    for shift in normal[:, : len(kernel.theta)]:
        K = kernel.with_theta(kernel.theta + shift)(X)
        result.append(K / np.trace(K) * len(K) + NOISE * np.eye(len(K)))
    return np.array(result)


def mean_affinity(A, B):
    """Integral of sqrt(N(f | 0, A_s) N(f | 0, B_t)), averaged over all draws s and t."""
    log_a, log_b = np.linalg.slogdet(A)[1], np.linalg.slogdet(B)[1]
    middle = np.linalg.slogdet(0.5 * (A[:, None] + B[None]))[1]
    return float(np.exp(0.25 * (log_a[:, None] + log_b) - 0.5 * middle).mean())


def optimise(features, values, first, n_steps):
    """The kernels that Bayesian optimisation tries, in its order, from the first ones on."""
    tried = list(first)
    while len(tried) < n_steps:
        kernel = ConstantKernel() * RBF() + WhiteKernel(1e-2, (1e-6, 1.0))
        surrogate = GaussianProcessRegressor(kernel, normalize_y=True)
        with warnings.catch_warnings():  # of a hyperparameter that ends at its limit
            warnings.simplefilter("ignore", ConvergenceWarning)
            surrogate.fit(features[tried], values[tried])
        mean, std = surrogate.predict(features, return_std=True)
        lead = mean - values[tried].max()
        std = np.maximum(std, 1e-12)
        gain = lead * norm.cdf(lead / std) + std * norm.pdf(lead / std)
        gain[tried] = -np.inf
        tried.append(int(np.argmax(gain)))
    return np.array(tried)


def best_so_far(values, order):
    """Of the kernels in this order, the best one up to each."""
    leaders = np.maximum.accumulate(values[order])
    return order[[int(np.flatnonzero(values[order] == leader)[0]) for leader in leaders]]


def draw(curves, average, best, chance):
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, errors in curves.items():
        trained = np.arange(1, errors.shape[1] + 1)
        mean, std = errors.mean(axis=0), errors.std(axis=0)
        axis.plot(trained, mean, label=name)
        axis.fill_between(trained, mean - std, mean + std, alpha=0.2)
    levels = {"VBKS": (average, "-"), "VBKS-s": (best, "--"), "random": (chance, ":")}
    for name, (value, style) in levels.items():
        axis.axhline(value, color="black", linestyle=style, label=name)
    axis.set(xscale="log", xlabel="kernels trained", ylabel="RMSE")
    axis.legend()
    return figure
