"""
Quick start: a drop-in for GaussianProcessRegressor
===================================================

Progression of diabetes in 442 patients, predicted with an honest uncertainty. NLPD is the mean
negative log density of the test targets: lower is better, and it punishes both errors and
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

from skvbgp import VBDTCRegressor
from skvbgp.metrics import coverage, negative_log_predictive_density

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)

exact_kernel = ConstantKernel() * RBF(np.ones(X.shape[1]), (1e-2, 1e9)) + WhiteKernel()
models = {
    "VBDTCRegressor": VBDTCRegressor(n_inducing=50, random_state=0),
    "GaussianProcessRegressor": GaussianProcessRegressor(exact_kernel, normalize_y=True),
}

# %%
# Fit both on the same rows, and compare them on the same test rows. Fifty inducing inputs are
# enough for these 331 rows.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
print(f"{'':26}{'RMSE':>8}{'NLPD':>8}{'95 % coverage':>15}{'seconds':>9}")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    start = perf_counter()
    model = make_pipeline(StandardScaler(), model).fit(X_train, y_train)
    seconds = perf_counter() - start
    mean, std = model.predict(X_test, return_std=True)

    rmse = root_mean_squared_error(y_test, mean)
    nlpd, covered = negative_log_predictive_density(y_test, mean, std), coverage(y_test, mean, std)
    print(f"{name:26}{rmse:8.2f}{nlpd:8.3f}{covered:15.1%}{seconds:9.2f}")

    ax.errorbar(y_test, mean, 1.96 * std, fmt="o", ms=4, lw=0.7, color="C0", ecolor="0.75")
    ax.axline((150, 150), slope=1, color="C3", lw=1)
    ax.set(title=f"{name}\nNLPD {nlpd:.3f}, coverage {covered:.0%}", xlabel="observed")
axes[0].set_ylabel("predicted, with 95 % interval")
fig.savefig("quickstart.png", dpi=150)
print("Picture: quickstart.png")
