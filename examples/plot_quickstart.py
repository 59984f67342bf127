"""
Quick start: a drop-in for GaussianProcessRegressor
===================================================

Progression of diabetes, learned from 250 patients and predicted for 192
others, with an honest uncertainty. NLPD is the mean negative log density of
the test targets: lower is better, and it punishes both errors and
over-confidence. About 95 % of the targets should fall into the 95 % intervals.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import VBDTCRegressor, VBGPRegressor
from skvbgp.metrics import coverage, negative_log_predictive_density

X, y = load_diabetes(return_X_y=True)
parts = train_test_split(X, y, train_size=250, random_state=0)
X_train, X_test, y_train, y_test = parts

amplitude, shape = ConstantKernel(), RBF(np.ones(X.shape[1]), (1e-2, 1e9))
exact_kernel = amplitude * shape + WhiteKernel()
exact = GaussianProcessRegressor(exact_kernel, normalize_y=True)
models = {
    "VBGPRegressor": VBGPRegressor(random_state=0),
    "VBDTCRegressor": VBDTCRegressor(random_state=0),
    "GaussianProcessRegressor": exact,
}

# %%
# Fit all on the same rows, and compare them on the same test rows. Much of the
# progression is not in these ten inputs, and what is there is smooth: expect
# three models that are nearly as good as each other. ``VBGPRegressor`` has
# found its kernel itself; ``VBDTCRegressor`` is the quick one.

fig, axes = plt.subplots(1, 3, figsize=(12, 4.5), sharex=True, sharey=True)
print(f"{'':26}{'RMSE':>8}{'NLPD':>8}{'95 % coverage':>15}{'seconds':>9}")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    start = perf_counter()
    model = make_pipeline(StandardScaler(), model).fit(X_train, y_train)
    mean, std = model.predict(X_test, return_std=True)
    seconds = perf_counter() - start

    rmse = root_mean_squared_error(y_test, mean)
    nlpd = negative_log_predictive_density(y_test, mean, std)
    covered = coverage(y_test, mean, std)
    print(f"{name:26}{rmse:8.2f}{nlpd:8.3f}{covered:15.1%}{seconds:9.2f}")

    band = {"fmt": "o", "ms": 4, "lw": 0.7, "color": "C0", "ecolor": "0.75"}
    ax.errorbar(y_test, mean, 1.96 * std, **band)
    ax.axline((150, 150), slope=1, color="C3", lw=1)
    title = f"{name}\nNLPD {nlpd:.3f}, coverage {covered:.0%}"
    ax.set(title=title, xlabel="observed")
axes[0].set_ylabel("predicted, with 95 % interval")
fig.tight_layout()
fig.savefig("quickstart.png", dpi=150)
print("Picture: quickstart.png")
