"""
Uncertain hyperparameters
=========================

A handful of rows says little about a length scale.
:class:`~sklearn.gaussian_process.GaussianProcessRegressor` takes the value of
highest evidence as if it were known; :class:`~skvbgp.sgpr.VBDTCRegressor`
learns a distribution with a prior, and averages its predictions over it. A
third model separates the two steps: it has the means of that distribution, but
not its variances.

Every data set is a draw from a Gaussian process with length scale 1 and noise
of standard deviation 0.2, so that the truth about the intervals is known.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import root_mean_squared_error

from skvbgp import VBDTCRegressor
from skvbgp.metrics import coverage, negative_log_predictive_density

# Of values at the bounds of their search.
warnings.simplefilter("ignore", ConvergenceWarning)
grid = np.linspace(-2.0, 2.0, 300)[:, None]


def draw(n_rows, seed):
    """A function on the grid, and a few noisy observations."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n_rows, 1))
    covariance = RBF(1.0)(np.concatenate([grid, X]))
    covariance += 1e-8 * np.eye(len(covariance))
    f = np.linalg.cholesky(covariance) @ rng.standard_normal(len(covariance))
    y = f + 0.2 * rng.standard_normal(len(f))
    return X, y[len(grid) :], f[: len(grid)], y[: len(grid)]


def fit_all(X, y):
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    exact = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    learned = VBDTCRegressor(random_state=0).fit(X, y)
    means = VBDTCRegressor(
        len(X),
        inducing_inputs=learned.inducing_inputs_,
        length_scale=1.0 / learned.inverse_length_scale_mean_,
        signal_std=learned.signal_std_mean_,
        noise_variance=learned.noise_variance_,
        hyperparameter_variance=1e-8,
        learn_hyperparameters=False,
        random_state=0,
    )
    return {
        "maximum of the evidence": exact.fit(X, y),
        "means of q": means.fit(X, y),
        "q(hyperparameters)": learned,
    }


# %%
# Twenty data sets of each size: how many of 300 new observations fall into the
# 95 % interval, and their mean negative log density (NLPD, lower is better).

sizes = [6, 8, 12, 20, 40]
results = []  # size, data set, model, measure
for n_rows in sizes:
    results.append([])
    for seed in range(20):
        X, y, _, y_new = draw(n_rows, seed)
        results[-1].append([])
        for model in fit_all(X, y).values():
            mean, std = model.predict(grid, return_std=True)
            results[-1][-1].append(
                [
                    coverage(y_new, mean, std),
                    negative_log_predictive_density(y_new, mean, std),
                    root_mean_squared_error(y_new, mean),
                ]
            )
# Each: size, model.
covered, nlpd, rmse = np.moveaxis(np.mean(results, axis=1), -1, 0)

print(f"{'rows':>4}  {'coverage':^21}  {'NLPD':^21}  {'RMSE':^21}")
for i, n_rows in enumerate(sizes):
    numbers = "  ".join(
        "{:7.2f}{:7.2f}{:7.2f}".format(*a[i]) for a in (covered, nlpd, rmse)
    )
    print(f"{n_rows:4}  {numbers}")

# %%
# The evidence of few rows is often highest where there is no noise at all, and
# the intervals are then far too narrow. The prior avoids part of that, and the
# variances of q widen the intervals further, at every size in the right
# direction. With some twenty rows the three are nearly alike.
#
# On the left the data set of eight rows on which the evidence did worst, on
# the right all of them.

worst = int(np.argmin(np.array(results)[1, :, 0, 0]))
X, y, f, _ = draw(8, worst)
fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
colors = ["0.4", "C1", "C0"]
models = fit_all(X, y)
for ax, name, color in zip(axes, [*models][::2], colors[::2], strict=False):
    mean, std = models[name].predict(grid, return_std=True)
    band = mean - 1.96 * std, mean + 1.96 * std
    ax.fill_between(grid[:, 0], *band, color=color, alpha=0.3, lw=0)
    ax.plot(grid, mean, color=color, label="prediction, 95 %")
    ax.plot(grid, f, "k--", lw=1, label="truth")
    ax.plot(X, y, "k.", ms=8)
    ax.set(title=f"Eight rows: {name}", ylim=(-3.5, 3.5))
    ax.legend(loc="upper right")
for name, color, shares in zip(models, colors, covered.T, strict=True):
    axes[2].plot(sizes, shares, "o-", color=color, label=name)
axes[2].axhline(0.95, color="k", lw=1, ls=":")
axes[2].set(
    xscale="log", xticks=sizes, xticklabels=sizes, xlabel="training rows"
)
axes[2].minorticks_off()
axes[2].set_title("Coverage of 95 % intervals")
axes[2].legend(loc="lower right")
plt.show()
