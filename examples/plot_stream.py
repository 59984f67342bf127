"""
A stream, and what to do when it drifts
=======================================

``partial_fit`` adds new rows to what a model knows, beyond 500 rows without a
look at the old ones, and in time that does not grow. It believes that all rows
come from one function. When the function changes, the model notices: its own
predictive density says that the new rows are all but impossible. What to do
then is up to you. Here one model goes on learning, and another starts again
from the latest chunk as soon as the standardised errors of a chunk are far too
large.

Every chunk is predicted first and learned afterwards, so that all errors are
those of new rows.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from skvbgp import VBDTCRegressor

rng = np.random.default_rng(0)
n_chunks, drift = 100, 50


def function(x, chunk):
    if chunk < drift:
        return np.sin(2.0 * x) + 0.3 * x
    return np.sin(2.0 * x + 1.5)


def next_chunk(chunk):
    X = rng.uniform(-3.0, 3.0, (100, 1))
    return X, function(X[:, 0], chunk) + 0.1 * rng.standard_normal(100)


X, y = next_chunk(0)
models = {
    "goes on": VBDTCRegressor(n_inducing=30, random_state=0).fit(X, y),
    "starts again": VBDTCRegressor(n_inducing=30, random_state=0).fit(X, y),
}
rmse = {name: [] for name in models}
noise = {name: [] for name in models}
grid = np.linspace(-3.0, 3.0, 200)[:, None]
shown = [drift - 1, drift + 1, n_chunks - 1]
pictures = {}

start = perf_counter()
for chunk in range(1, n_chunks):
    X, y = next_chunk(chunk)
    for name, model in models.items():
        mean, std = model.predict(X, return_std=True)
        rmse[name].append(np.sqrt(np.mean((y - mean) ** 2)))
        # About 1 while the model is right.
        surprise = np.mean(((y - mean) / std) ** 2)
        if name == "starts again" and surprise > 3.0:
            print(f"starts again at chunk {chunk}: surprise {surprise:.0f}")
            model.fit(X, y)
        else:
            model.partial_fit(X, y)
        noise[name].append(np.sqrt(model.noise_variance_))
        if chunk in shown:
            pictures[chunk, name] = model.predict(grid, return_std=True)
print(f"{perf_counter() - start:.1f} s for {n_chunks} chunks and two models")
for name, errors in rmse.items():
    before, after = np.mean(errors[: drift - 1]), np.mean(errors[drift:])
    later = f"chunks {drift + 1} to {n_chunks - 1}"
    print(f"{name:13} RMSE before drift {before:.3f}, {later}: {after:.3f}")

# %%
# The model that goes on weighs all rows equally: after the drift it finds a
# compromise between the two functions, and takes the contradiction for noise.
# The other one is as good as before, one chunk later. Where drift is to be
# expected, ``VBDTCRegressor(forgetting=0.999)`` does the same by itself: older
# rows fade, and after an abrupt change the model begins again
# (:ref:`after-a-change`).

fig, axes = plt.subplot_mosaic(
    "AAABBB;CCDDEE", figsize=(12, 6.5), layout="constrained"
)
for name, color in {"goes on": "C1", "starts again": "C0"}.items():
    axes["A"].plot(range(1, n_chunks), rmse[name], color=color, label=name)
    axes["B"].plot(range(1, n_chunks), noise[name], color=color)
    for ax, chunk in zip("CDE", shown, strict=True):
        mean, std = pictures[chunk, name]
        band = mean - 1.96 * std, mean + 1.96 * std
        axes[ax].fill_between(grid[:, 0], *band, color=color, alpha=0.3, lw=0)
        axes[ax].plot(grid, mean, color=color)
        axes[ax].plot(grid, function(grid[:, 0], chunk), "k--", lw=1)
        axes[ax].set(
            title=f"after chunk {chunk} (dashed: truth)", ylim=(-2.8, 2.8)
        )
axes["A"].set(
    title="Error of each chunk before it is learned (RMSE)", xlabel="chunk"
)
axes["A"].legend()
axes["B"].set(title="Learned standard deviation of the noise", xlabel="chunk")
plt.show()
