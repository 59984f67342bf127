"""
A latent picture of digits
==========================

Five hundred handwritten digits, 0 to 4, of 8 x 8 pixels, in two dimensions:
:class:`~skvbgp.ep.HybridGPLVM` models all pixels and, in the second picture,
the class as Gaussian processes of two latent variables.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_score

from skvbgp import HybridGPLVM

X, y = load_digits(return_X_y=True)
rows = np.flatnonzero(y < 5)
train, test = rows[:500], rows[500:]
models = {
    "pixels alone": HybridGPLVM(random_state=0).fit(X[train]),
    "pixels and labels": HybridGPLVM(random_state=0).fit(X[train], y[train]),
}

# %%
# Dots are training rows, crosses new ones, whose labels the model does not
# see. The shade says how certain the class is at each place.

fig, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
colors = plt.get_cmap("tab10").colors[:5]
for ax, (name, model) in zip(axes, models.items(), strict=True):
    for part, marker, size in [(train, "o", 12), (test, "x", 18)]:
        latents = model.transform(X[part])
        ax.scatter(
            *latents.T,
            c=[colors[k] for k in y[part]],
            marker=marker,
            s=size,
            alpha=0.8,
        )
    score = silhouette_score(model.transform(X[test]), y[test])
    ax.set(
        title=f"{name}: silhouette of new rows {score:.2f}",
        xticks=[],
        yticks=[],
    )
for digit, color in enumerate(colors):
    axes[1].plot([], [], "o", color=color, label=str(digit))
axes[1].legend(title="digit", loc="best")
print(f"accuracy on new rows: {model.score(X[test], y[test]):.3f}")

# %%
# Walk through the latent space: what the model of pixels alone expects to see
# at each place, next to digits with half of their pixels missing, and
# completed.

model = models["pixels alone"]
low, high = np.quantile(model.transform(X[train]), [0.03, 0.97], axis=0)
n = 10
grid = np.stack(
    np.meshgrid(
        np.linspace(low[0], high[0], n), np.linspace(high[1], low[1], n)
    ),
    axis=-1,
)
images = model.inverse_transform(grid.reshape(-1, 2)).reshape(n, n, 8, 8)
rng = np.random.default_rng(0)
holes = X[test[:n]].copy()
holes[rng.random(holes.shape) < 0.5] = np.nan
completed = model.impute(holes)

fig, axes = plt.subplots(
    1, 2, figsize=(11, 5.5), width_ratios=[2, 1], layout="constrained"
)
axes[0].imshow(
    images.transpose(0, 2, 1, 3).reshape(8 * n, 8 * n),
    cmap="gray_r",
    vmin=0,
    vmax=16,
)
axes[0].set_title("digits across the latent space")
columns = [X[test[:n]], holes, completed]
strips = [
    np.vstack([row.reshape(8, 8) for row in column]) for column in columns
]
axes[1].imshow(np.hstack(strips), cmap="gray_r", vmin=0, vmax=16)
axes[1].set_title("new digits, half missing, completed")
for ax in axes:
    ax.set_axis_off()
plt.show()
