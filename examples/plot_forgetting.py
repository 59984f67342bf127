"""
A pump that wears, and is replaced
==================================

A stream of measurements: the efficiency of a pump at the load of the moment.
It wears slowly, and after 800 measurements a new one is put in. A model that
weighs all rows alike cannot tell what the efficiency is today. With
``forgetting``, older rows fade (below 1), or only the newest ones are known
(above 1).

Every chunk is predicted first and learned afterwards.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF

rng = np.random.default_rng(0)
n, replaced, step = 1200, 800, 40
time = np.arange(n)
wear = np.where(time < replaced, time, time - replaced) / 1500
load = rng.uniform(0.2, 1.0, (n, 1))


def efficiency(load, wear):
    return 0.8 - 1.2 * (load - 0.7) ** 2 - 0.4 * wear * load


y = efficiency(load[:, 0], wear) + 0.01 * rng.standard_normal(n)

models = {
    "forgets nothing": VBGPRegressor(RBF(0.5), random_state=0),
    "rows fade (0.98)": VBGPRegressor(
        RBF(0.5), forgetting=0.98, random_state=0
    ),
    "newest 150 rows": VBGPRegressor(RBF(0.5), forgetting=150, random_state=0),
}
rmse = {name: [] for name in models}
alarm = []  # probability that efficiency at full load is below 0.55
for i in range(0, n, step):
    rows = slice(i, i + step)
    for name, model in models.items():
        if i:
            error = model.predict(load[rows]) - y[rows]
            rmse[name].append(np.sqrt(np.mean(error**2)))
        model.partial_fit(load[rows], y[rows])
    faded = models["rows fade (0.98)"]
    mean, std = faded.predict([[1.0]], return_std=True, include_noise=False)
    alarm.append(norm.cdf((0.55 - mean[0]) / std[0]))
for name, errors in rmse.items():
    print(f"{name:17} RMSE {np.mean(errors):.4f}")

# %%
# The model that forgets nothing is a compromise of all that has been. The
# other two follow the wear; after the replacement, the window is right again
# when it holds new rows only, the fading model a little earlier.

fig, (top, bottom) = plt.subplots(
    2, 1, figsize=(8, 6), sharex=True, layout="constrained"
)
for name, errors in rmse.items():
    top.plot(time[step::step], errors, label=name)
top.axvline(replaced, color="k", ls=":")
top.set(title="Error of each chunk before it is learned", yscale="log")
top.legend()
bottom.plot(time[::step] + step, alarm, "C1")
bottom.axhline(0.1, color="k", lw=0.8)
bottom.axvline(replaced, color="k", ls=":")
bottom.set(
    xlabel="measurement",
    title="Probability that efficiency at full load is below 0.55",
)

# %%
# The decision: when to look at the pump. What fades is always somewhat late,
# by some fifty rows here, and few of these are of full load. So one does not
# wait until the limit has surely been passed: one chance in ten is enough.

late = time[::step][np.flatnonzero(np.array(alarm) > 0.1)[0]] + step
true = 1500 * (efficiency(1.0, 0.0) - 0.55) / 0.4
print(f"alarm at measurement {late}, the limit was passed at {true:.0f}")
plt.show()
