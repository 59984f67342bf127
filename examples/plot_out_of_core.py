"""
A million rows from disk
========================

``fit`` reads a memory-mapped array in mini-batches, so the training data may
be larger than memory. A million rows are written to a temporary file and
fitted from there; ``tracemalloc`` counts the memory that Python and NumPy ask
for meanwhile.
"""

import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.format import open_memmap

from skvbgp import VBDTCRegressor

n_rows = 1_000_000


def function(X):
    radius = np.hypot(X[:, 0], X[:, 1])
    return np.sin(3.0 * radius) / (1.0 + radius)


folder = tempfile.TemporaryDirectory()
files = Path(folder.name) / "X.npy", Path(folder.name) / "y.npy"
X = open_memmap(files[0], "w+", np.float64, (n_rows, 2))
y = open_memmap(files[1], "w+", np.float64, (n_rows,))
rng = np.random.default_rng(0)
for start in range(0, n_rows, 100_000):
    rows = slice(start, start + 100_000)
    X[rows] = rng.uniform(-4.0, 4.0, (100_000, 2))
    y[rows] = function(X[rows]) + 0.5 * rng.standard_normal(100_000)
del X, y

# %%
# Load the two files as memory maps, and fit.

X, y = (np.load(file, mmap_mode="r") for file in files)
tracemalloc.start()
start = perf_counter()
model = VBDTCRegressor(n_inducing=64, random_state=0).fit(X, y)
seconds = perf_counter() - start
_, peak = tracemalloc.get_traced_memory()
tracemalloc.stop()
size = sum(file.stat().st_size for file in files)
noise = np.sqrt(model.noise_variance_)
print(f"data: {size / 1e6:.0f} MB")
print(f"fit: {seconds:.1f} s, peak memory {peak / 1e6:.0f} MB")
print(f"passes: {model.n_iter_}; noise: {noise:.4f} (truth 0.5)")

side = np.linspace(-4.0, 4.0, 150)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
mean, std = model.predict(grid, return_std=True, include_noise=False)
truth = function(grid)
print(f"RMSE of the function: {np.sqrt(np.mean((mean - truth) ** 2)):.4f}")

fig, axes = plt.subplots(1, 3, figsize=(12, 3.7), layout="constrained")
panels = {
    "2,000 of 1,000,000 rows": None,
    "prediction": mean,
    "prediction - truth": mean - truth,
}
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    kind = {"cmap": "RdBu_r", "vmin": -0.75, "vmax": 0.75}
    if values is None:
        image = ax.scatter(*X[:2000].T, c=y[:2000], s=4, **kind)
        ax.set_aspect("equal")
    else:
        if title != "prediction":
            kind |= {"vmin": -0.1, "vmax": 0.1}
        image = ax.imshow(
            values.reshape(150, 150),
            extent=(-4, 4, -4, 4),
            origin="lower",
            **kind,
        )
    ax.set(title=title, xlim=(-4, 4), ylim=(-4, 4), xticks=[], yticks=[])
    fig.colorbar(image, ax=ax, shrink=0.8)
plt.show()

del X, y
folder.cleanup()
