"""
DTC, FITC, PITC and PIC on one curve
====================================

Sparse Gaussian processes pass everything they know through a few inducing
inputs. The four regressors of :doc:`/user_guide/sgpr` differ in what they do
with the rest: DTC calls it white noise, FITC noise whose variance depends on
the place, PITC noise that neighbours share, and PIC uses what neighbours share
in its predictions, too.

Here is a slow wave, which twelve inducing inputs can follow, and a rough walk
on top of it, which they cannot. The walk is longer on the right. All models
get the same rough noise kernel and the same 600 rows; NLPD is the mean
negative log density of 300 others, lower is better.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skvbgp import (
    VBDTCRegressor,
    VBFITCRegressor,
    VBPICRegressor,
    VBPITCRegressor,
)
from skvbgp.kernels import Matern
from skvbgp.metrics import negative_log_predictive_density

rng = np.random.default_rng(0)
grid = np.linspace(0.0, 10.0, 1000)
steps = np.where(grid < 5.0, 0.01, 0.1) * rng.standard_normal(1000)
walk = np.cumsum(steps)
truth = 2.0 * np.sin(1.2 * grid) + walk
rows = rng.permutation(1000)[:900]
X, y = grid[rows, None], truth[rows] + 0.05 * rng.standard_normal(900)
X_train, y_train, X_test, y_test = X[:600], y[:600], X[600:], y[600:]

rough = {"noise_kernel": Matern(nu=0.5)}
blocks = rough | {"n_blocks": 6}
models = {
    "DTC": VBDTCRegressor(12, random_state=0),
    "FITC": VBFITCRegressor(12, random_state=0, **rough),
    "PITC": VBPITCRegressor(12, random_state=0, **blocks),
    "PIC": VBPICRegressor(12, random_state=0, **blocks),
}

fig, axes = plt.subplots(
    2, 2, figsize=(10, 6.5), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
    mean, std = model.fit(X_train, y_train).predict(X_test, return_std=True)
    rmse = root_mean_squared_error(y_test, mean)
    nlpd = negative_log_predictive_density(y_test, mean, std)
    bound = model.lower_bound_
    print(f"{name:5}RMSE {rmse:.3f}, NLPD {nlpd:6.3f}, bound {bound:7.1f}")

    mean, std = model.predict(grid[:, None], return_std=True)
    band = mean - 1.96 * std, mean + 1.96 * std
    ax.fill_between(grid, *band, color="C0", alpha=0.25, lw=0)
    ax.plot(grid, mean, color="C0", lw=1.5)
    ax.plot(X_train, y_train, ".", color="0.3", ms=2)
    ax.set_title(f"{name}: RMSE {rmse:.2f}, NLPD {nlpd:.2f}")
plt.show()

# %%
# DTC has one width for all places. FITC is narrower on the calm side. PITC and
# PIC are the same model and have the same bound, far above the others',
# because they take the walk for what it is: something that neighbours share.
# PIC adds the part of it that a new row shares with its neighbours; PITC
# predicts the function below the walk alone, and as the walk is the larger
# part on the right, it hardly knows that one. Take PITC only if that function
# is what you want.
