"""
Conformal intervals on top
==========================

The intervals of a Gaussian process are as good as its assumptions. Here one is
broken: the noise has heavy tails (Student's t with three degrees of freedom),
which a Gaussian can only take for a larger variance. Split conformal
prediction, by `MAPIE <https://mapie.readthedocs.io>`_, repairs the coverage
whatever the noise, with the model's own standard deviation as the scale and a
few hundred rows that the model has not seen.
"""

import matplotlib.pyplot as plt
import numpy as np
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator

from skvbgp import VBDTCRegressor
from skvbgp.metrics import prediction_interval


class StandardDeviation(BaseEstimator):
    """What MAPIE divides the residuals by: the model's own deviation."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.is_fitted = True  # one of the names MAPIE looks for
        return self

    def predict(self, X):
        return self.model.predict(X, return_std=True)[1]


def function(x):
    return np.sin(x) + 0.2 * x


rng = np.random.default_rng(0)
X = rng.uniform(0.0, 10.0, (6000, 1))
y = function(X[:, 0]) + 0.2 * rng.standard_t(3.0, 6000)
X_train, X_calibrate, X_test = X[:500], X[500:1000], X[1000:]
y_train, y_calibrate, y_test = y[:500], y[500:1000], y[1000:]

model = VBDTCRegressor(n_inducing=30, random_state=0).fit(X_train, y_train)
levels = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
scale = StandardDeviation(model).fit(X_train, y_train)
conformal = SplitConformalRegressor(
    model, levels, ResidualNormalisedScore(scale, prefit=True), prefit=True
).conformalize(X_calibrate, y_calibrate)


def intervals(X):
    """Lower and upper ends, (rows, 2, levels), of both kinds."""
    mean, std = model.predict(X, return_std=True)
    ends = [prediction_interval(mean, std, level=level) for level in levels]
    return {
        "Gaussian": np.stack(ends).T,
        "conformal": conformal.predict_interval(X)[1],
    }


# %%
# Half of the new observations should lie in the 50 % intervals, and so on. The
# few large errors have widened the Gaussian intervals of all levels; only that
# of 99 % is about right.

coverage = {}
print("nominal    " + "".join(f"{level:7.0%}" for level in levels))
for name, ends in intervals(X_test).items():
    inside = (ends[:, 0] <= y_test[:, None]) & (y_test[:, None] <= ends[:, 1])
    coverage[name] = inside.mean(axis=0)
    print(f"{name:11}" + "".join(f"{share:7.1%}" for share in coverage[name]))

fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
colors = {"Gaussian": "C1", "conformal": "C0"}
grid = np.linspace(0.0, 10.0, 300)[:, None]
axes[0].plot(X_test[:1000, 0], y_test[:1000], ".", color="0.7", ms=2)
for name, ends in intervals(grid).items():
    for line in ends[:, :, 0].T:
        label = name if line is ends[:, 0, 0] else None
        axes[0].plot(grid, line, color=colors[name], label=label)
    axes[1].plot(levels, coverage[name], "o-", color=colors[name], label=name)
axes[0].set(title="50 % intervals", ylim=(-2.5, 4.0))
axes[1].axline((0.5, 0.5), slope=1.0, color="k", lw=1, ls=":")
axes[1].set(
    title="Coverage of 5,000 new rows", xlabel="nominal", ylabel="observed"
)
axes[1].legend()
plt.show()

# %%
# Conformal intervals are right on average over new rows, not for every region
# of the inputs. Where the tails are known to be heavy,
# ``DecoupledGPRegressor(likelihood="student_t")`` models them.
