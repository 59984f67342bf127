"""
Quick start: fill in a photograph
=================================

A field that was measured in some places, to be filled in with honest
uncertainty: here the brightness of a photograph, smooth in the sky and rough
in the roofs. NLPD is the mean negative log density of the pixels that were
not seen: lower is better, and it punishes both errors and over-confidence.
About 95 % of them should fall into the 95 % intervals.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    WhiteKernel,
)
from sklearn.metrics import root_mean_squared_error

from skvbgp import VBGPRegressor
from skvbgp.metrics import coverage, negative_log_predictive_density

# A pixel of this picture is the mean of six by six of the photograph's.
photo = load_sample_image("china.jpg").mean(axis=2)[:426, :636]
picture = photo.reshape(71, 6, 106, 6).mean(axis=(1, 3))
X = np.indices(picture.shape).reshape(2, -1).T.astype(float)
y = picture.ravel()
known = np.random.default_rng(0).permutation(y.size) < 1_200

rough, smooth = Matern([5.0, 5.0], nu=0.5), RBF([5.0, 5.0])
models = {
    "VBGPRegressor": VBGPRegressor(random_state=0),
    "exact, Matern-1/2": GaussianProcessRegressor(
        ConstantKernel() * rough + WhiteKernel(), normalize_y=True
    ),
    "exact, RBF": GaussianProcessRegressor(
        ConstantKernel() * smooth + WhiteKernel(), normalize_y=True
    ),
}

# %%
# Fit all on the same 1,200 pixels and compare them on the 6,326 others.
# ``VBGPRegressor`` finds its kernel itself, and its intervals are narrow in
# the sky and wide in the roofs. An exact Gaussian process (scikit-learn's
# ``GaussianProcessRegressor``) with a smooth kernel is behind in everything.
# With the right kernel, which somebody has to know, its means are as good,
# but one width nearly everywhere is too wide for the sky and too narrow for
# the roofs: that costs .2 nats for each pixel.

seen = np.where(known.reshape(picture.shape), picture, np.nan)
fig, axes = plt.subplots(2, 4, figsize=(12, 4.4), layout="constrained")
gray = {"cmap": "gray", "vmin": 0, "vmax": 255}
axes[0, 0].imshow(picture, **gray)
axes[0, 0].set_title("the photograph")
axes[1, 0].imshow(seen, **gray)
axes[1, 0].set_title("what is known of it")
print(f"{'':18}{'RMSE':>8}{'NLPD':>8}{'95 % coverage':>15}{'seconds':>9}")
for (name, model), column in zip(models.items(), axes.T[1:], strict=True):
    top, bottom = column
    start = perf_counter()
    model.fit(X[known], y[known])
    mean, std = model.predict(X, return_std=True)
    seconds = perf_counter() - start

    new = ~known
    rmse = root_mean_squared_error(y[new], mean[new])
    nlpd = negative_log_predictive_density(y[new], mean[new], std[new])
    covered = coverage(y[new], mean[new], std[new])
    print(f"{name:18}{rmse:8.2f}{nlpd:8.3f}{covered:15.1%}{seconds:9.2f}")

    top.imshow(mean.reshape(picture.shape), **gray)
    top.set_title(f"{name}\nRMSE {rmse:.1f}, NLPD {nlpd:.2f}")
    shown = bottom.imshow(std.reshape(picture.shape), vmin=0, vmax=60)
    bottom.set_title(
        f"its standard deviation\n{covered:.1%} in 95 % intervals"
    )
for ax in axes.flat:
    ax.set_axis_off()
fig.colorbar(shown, ax=axes, shrink=0.6, label="std")
fig.savefig("quickstart.png", dpi=110)
print("Picture: quickstart.png")
