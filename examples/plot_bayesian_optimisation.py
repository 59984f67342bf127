"""
Where to measure next: Bayesian optimisation
============================================

A function costs much to evaluate, say an hour of a machine or a trip to the
field, and its minimum is wanted after a few dozen evaluations. A model that
knows what it does not know says where to look next. Two rules:

- *Thompson sampling*: draw one function from the posterior and evaluate where
  that draw has its minimum. ``sample_function`` draws whole functions.
- *Expected improvement*: evaluate where the mean improvement over the best
  value so far is largest, which takes mean and standard deviation alone.

We count what matters to whoever pays: how far the best value is from the
minimum after each evaluation. The yardsticks are expected improvement with
scikit-learn's ``GaussianProcessRegressor``, and evaluations at random.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    Matern,
    WhiteKernel,
)

from skvbgp import VBGPRegressor


def branin(X):
    """Three equal minima in a valley, .397887."""
    a, b = 15.0 * X[:, 0] - 5.0, 15.0 * X[:, 1]
    bowl = b - 5.1 / (4.0 * np.pi**2) * a**2 + 5.0 / np.pi * a - 6.0
    return bowl**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0


A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(X):
    """Six inputs, four wells of different depths, -3.32237."""
    depth = np.array([1.0, 1.2, 3.0, 3.2])
    return -np.exp(-np.sum(A * (X[:, None] - P) ** 2, axis=2)) @ depth


PROBLEMS = {
    "Branin, 2 inputs": (branin, 2, 0.397887, 10, 30),
    "Hartmann, 6 inputs": (hartmann, 6, -3.32237, 32, 60),
}

# %%
# Candidates are random places, and some near the best one so far. A model of
# ours learns its hyperparameters when the number of evaluations has doubled;
# a new evaluation is known to the next prediction at once.


def propose(rng, X, y, d):
    near = X[np.argmin(y)] + 0.05 * rng.standard_normal((200, d))
    return np.vstack([rng.uniform(size=(300, d)), np.clip(near, 0.0, 1.0)])


def improvement(mean, std, best):
    z = (best - mean) / std
    return (best - mean) * norm.cdf(z) + std * norm.pdf(z)


def by_thompson(model, places, best, rng):
    draw = model.sample_function(1, random_state=rng.integers(2**31))
    return np.argmin(draw(places)[:, 0])


def by_improvement(model, places, best, rng):
    mean, std = model.predict(places, return_std=True, include_noise=False)
    return np.argmax(improvement(mean, std, best))


class Peer:
    """scikit-learn's regressor with a Matern kernel, fitted to all rows."""

    def __init__(self, d):
        kernel = ConstantKernel() * Matern(np.ones(d), nu=2.5)
        kernel += WhiteKernel(1e-4, (1e-8, 1.0))
        self.model = GaussianProcessRegressor(kernel, normalize_y=True)
        self.X, self.y = np.empty((0, d)), np.empty(0)

    def partial_fit(self, X, y):
        self.X, self.y = np.vstack([self.X, X]), np.append(self.y, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(self.X, self.y)

    def predict(self, X, return_std, include_noise):
        return self.model.predict(X, return_std=return_std)


def search(function, d, first, n, seed, model=None, choose=None):
    """Best value after each of n evaluations, the first ones at random."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(first if model else n, d))
    y = function(X)
    if model is None:
        return np.minimum.accumulate(y)
    model.partial_fit(X, y)
    while len(y) < n:
        places = propose(rng, X, y, d)
        x = places[[choose(model, places, y.min(), rng)]]
        X, y = np.vstack([X, x]), np.append(y, function(x))
        model.partial_fit(x, y[-1:])
    return np.minimum.accumulate(y)


# %%
# Each search twice, from different first evaluations; lines are the mean. In
# the curved valley, which no single length scale fits, a belief over kernels
# comes nearer; among four round wells scikit-learn's one kernel does.


def make_model(d):
    return VBGPRegressor(random_state=0)


WAYS = {
    "Thompson sampling": (make_model, by_thompson),
    "expected improvement": (make_model, by_improvement),
    "the same, scikit-learn": (Peer, by_improvement),
    "at random": (lambda d: None, None),
}

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8))
for ax, (title, problem) in zip(axes, PROBLEMS.items(), strict=True):
    function, d, least, first, n = problem
    print(title)
    for name, (make, choose) in WAYS.items():
        best = [
            search(function, d, first, n, seed, make(d), choose)
            for seed in (0, 1)
        ]
        regret = np.mean(best, axis=0) - least
        ax.semilogy(np.arange(1, n + 1), regret, label=name)
        print(f"  {name:24s} {regret[-1]:.2g} above the minimum")
    ax.set(title=title, xlabel="evaluations", ylabel="best, above the minimum")
axes[0].legend()
fig.tight_layout()
plt.show()
