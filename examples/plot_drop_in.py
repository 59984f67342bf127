"""
In the place of scikit-learn's own process
==========================================

:class:`~skvbgp.gp.VBGPRegressor` is fitted and asked for a standard deviation
like :class:`~sklearn.gaussian_process.GaussianProcessRegressor`. It finds the
kernel itself, and knows the noise from the data. Both bands are meant to hold
95 % of new observations.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from skvbgp import VBGPRegressor

rng = np.random.default_rng(0)
X, grid = rng.uniform(0, 10, (150, 1)), np.linspace(-2, 12, 300)[:, None]
y = X[:, 0] * np.sin(X[:, 0]) + rng.standard_normal(150)

plt.figure(figsize=(8, 4), layout="constrained")
exact = GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True)
models = [exact, VBGPRegressor(random_state=0)]
for color, model in zip(["0.4", "C0"], models, strict=True):
    mean, std = model.fit(X, y).predict(grid, return_std=True)
    band = mean - 1.96 * std, mean + 1.96 * std
    label = type(model).__name__
    plt.fill_between(grid[:, 0], *band, color=color, alpha=0.25, label=label)
    plt.plot(grid, mean, color=color)
plt.plot(X, y, "k.", ms=4)
plt.legend()
plt.show()
