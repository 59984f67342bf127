"""
A field of sensors, some of which fail
======================================

Sixty stations measure temperature and humidity. In every fifth one the
hygrometer is broken, and the position of some is not quite known: one
coordinate is missing. Rows need not be dropped: where ``y`` is NaN, an output
was not observed, and where ``X`` is, the entry is an uncertain input.

What is asked for in the end: where should the next station be?
"""

import matplotlib.pyplot as plt
import numpy as np

from skvbgp import VBGPRegressor

rng = np.random.default_rng(1)


def measure(X):
    east, north = X.T
    hill = np.exp(-((east - 0.3) ** 2 + (north - 0.6) ** 2) / 0.05)
    temperature = 22.0 - 6.0 * hill + 2.0 * east
    humidity = 55.0 + 20.0 * hill - 10.0 * north
    return np.column_stack([temperature, humidity])


X = rng.uniform(size=(60, 2))
X = X[(X[:, 0] < 0.65) | (X[:, 1] < 0.5)]  # a corner without stations
Y = measure(X) + rng.standard_normal((len(X), 2)) * [0.3, 1.0]
Y[::5, 1] = np.nan
known = X.copy()
known[3::10, 0] = np.nan
model = VBGPRegressor(random_state=0).fit(known, Y)

# %%
# Each output has a model of its own, learned from the rows in which it was
# observed.

side = np.linspace(0.0, 1.0, 50)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
mean, std = model.predict(grid, return_std=True, include_noise=False)
inside = np.abs(measure(grid) - mean) < 1.96 * std
print(f"truth inside the 95 % bands: {inside.mean(axis=0).round(2)}")

fig, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
names = ["Temperature (degrees)", "Humidity (%)"]
for row, name, m, s in zip(axes, names, mean.T, std.T, strict=True):
    for ax, values, what in zip(row, [m, s], ["mean", "std"], strict=True):
        image = ax.pcolormesh(side, side, values.reshape(50, 50))
        fig.colorbar(image, ax=ax)
        ax.set(title=f"{name}: {what}", aspect="equal")
        ax.plot(*X.T, "o", color="w", mec="k", ms=4)

# %%
# The decision: where both are least known, in units of their spread.

unknown = (std / np.nanstd(Y, axis=0)).sum(axis=1)
best = grid[np.argmax(unknown)]
for ax in axes[:, 1]:
    ax.plot(*best, "*", color="C3", ms=16)
print(f"the next station: east {best[0]:.2f}, north {best[1]:.2f}")
plt.show()
