"""
A kernel for a series, and its forecast
=======================================

What a Gaussian process says beyond its data is decided by the kernel.
:class:`~skvbgp.kernel_selection.VBKSRegressor` fits a list of kernels, derives
a belief about them from the evidence [Teng2020]_, and averages the predictions
of the best. Of a series, which is one column of times, the list is that of
:func:`~skvbgp.kernel_selection.series_kernels`: levels and slopes that wander,
with a season, of ``y`` and of its logarithm. The series has monthly values
with a trend and a season that grows with it: ten years to learn from, five to
predict.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skvbgp import VBKSRegressor
from skvbgp.inspection import KernelPosteriorDisplay

rng = np.random.default_rng(0)
year = np.arange(12 * 15) / 12.0
season = np.sin(2.0 * np.pi * year) + 0.4 * np.cos(4.0 * np.pi * year)
y = (4.0 + 0.8 * year) * (3.0 + season) + 2.0 * rng.standard_normal(len(year))
t, past = year[:, None], year < 10.0

model = VBKSRegressor(random_state=0).fit(t[past], y[past])
print(model.summary())
rmse = root_mean_squared_error(y[~past], model.predict(t[~past]))
low, high = model.predict_interval(t[~past], 0.95)
share = np.mean((low < y[~past]) & (y[~past] < high))
print(f"future: RMSE {rmse:.2f}, {share:.0%} in the 95 % interval")

# %%
# Ten years leave it open which kernel it is: the belief is shared by several,
# and the forecast is their average. The bands are the central 50, 80 and 95 %
# of the predictive distribution, which is no normal one where a logarithm is
# believed in: ``predict_interval`` knows. ``VBKSRegressor("grammar")`` tries
# the 144 sums and products of four simple kernels instead, as the paper does.

fig, axes = plt.subplots(
    1, 2, figsize=(12, 4.2), width_ratios=[2, 1], layout="constrained"
)
months = np.linspace(0.0, 15.0, 1000)[:, None]
for level, alpha in ((0.95, 0.2), (0.8, 0.3), (0.5, 0.4)):
    band = model.predict_interval(months, level)
    style = {"color": "C0", "alpha": alpha, "lw": 0}
    axes[0].fill_between(months[:, 0], *band, **style, label=f"{level:.0%}")
axes[0].plot(year[past], y[past], "k.", ms=4, label="learned from")
axes[0].plot(year[~past], y[~past], "C3.", ms=4, label="the future")
axes[0].axvline(10.0, color="k", lw=1, ls=":")
axes[0].set(title="Forecast of five years", xlabel="year")
axes[0].legend(loc="upper left", ncols=2)
KernelPosteriorDisplay.from_estimator(model, max_kernels=8, ax=axes[1])
axes[1].set(title="Belief about the kernel")
plt.show()
