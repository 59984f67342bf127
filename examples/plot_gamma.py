"""
Local or global: gamma
======================

:class:`~skvbgp.spectrum.SVBSSGPRegressor` learns the frequencies of its
kernel. With ``gamma=1`` a new row is predicted from one global function made
of them, with ``gamma=0`` (the default) from the training rows nearest to it,
and in between from both. Which one is better depends on the data, and as
``gamma`` may be changed after ``fit``, it costs nothing to try.

Two curves, each with 1,500 rows: two waves under much noise, which twenty
frequencies hold easily, and a random walk, which they do not.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvbgp import SVBSSGPRegressor
from skvbgp.metrics import negative_log_predictive_density

rng = np.random.default_rng(0)
grid = np.linspace(0.0, 10.0, 2001)
curves = {
    "two waves": (np.sin(2.0 * grid) + 0.5 * np.cos(5.0 * grid), 0.5),
    "random walk": (0.1 * np.cumsum(rng.standard_normal(2001)), 0.1),
}
gammas = np.linspace(0.0, 1.0, 11)

fig, axes = plt.subplots(
    2, 3, figsize=(13, 6.5), layout="constrained", sharex="col"
)
for row, (name, (truth, noise)) in zip(axes, curves.items(), strict=True):
    rows = rng.permutation(2001)[:1500]
    y = truth + noise * rng.standard_normal(2001)
    test = np.setdiff1d(np.arange(2001), rows)
    model = SVBSSGPRegressor(20, random_state=0).fit(grid[rows, None], y[rows])

    nlpd = []
    for gamma in gammas:
        model.set_params(gamma=gamma)
        mean, std = model.predict(grid[test, None], return_std=True)
        nlpd.append(negative_log_predictive_density(y[test], mean, std))
    print(f"{name:12} NLPD at gamma 0: {nlpd[0]:6.3f}, at 1: {nlpd[-1]:6.3f}")

    for ax, gamma in zip(row, [0.0, 1.0], strict=False):
        model.set_params(gamma=gamma)
        mean, std = model.predict(grid[:, None], return_std=True)
        ax.plot(grid[rows], y[rows], ".", color="0.75", ms=2)
        band = mean - 1.96 * std, mean + 1.96 * std
        ax.fill_between(grid, *band, color="C0", alpha=0.25, lw=0)
        ax.plot(grid, truth, "k", lw=0.8)
        ax.plot(grid, mean, "C0", lw=1.2)
        ax.set(title=f"{name}, gamma = {gamma:g}", xlim=(3.0, 7.0))
    row[2].plot(gammas, nlpd, "o-")
    row[2].set_title(f"{name}: NLPD of new rows")
axes[1, 2].set_xlabel("gamma: from local (0) to global (1)")
plt.show()

# %%
# Black is the truth, blue the prediction with its 95 % band for new
# observations.
