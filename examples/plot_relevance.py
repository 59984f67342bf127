"""
Which inputs matter, and how sure is that?
==========================================

With automatic relevance determination every input has a length scale of its
own, and an input that plays no part has an inverse length scale near zero. A
point estimate leaves open how near is near enough.
:class:`~skvbgp.sgpr.VBDTCRegressor` learns a distribution of every inverse
length scale, so that relevance comes with a 95 % interval [Yu2019]_.

Friedman's function has ten inputs and uses five:
y = 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4 + noise.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from skvbgp import VBDTCRegressor
from skvbgp.inspection import RelevanceDisplay

names = [f"x{i}" + ("" if i < 5 else " (unused)") for i in range(10)]
fig, axes = plt.subplots(
    1, 2, figsize=(11, 4), sharex=True, layout="constrained"
)
for ax, n_rows in zip(axes, (100, 1000), strict=True):
    X, y = make_friedman1(n_rows, noise=1.0, random_state=0)
    model = VBDTCRegressor(n_inducing=100, random_state=0).fit(X, y)
    RelevanceDisplay.from_estimator(model, feature_names=names, ax=ax)
    ax.set_title(f"{n_rows} rows")
plt.show()

# %%
# With 100 rows the order of the five is right except for the first two, which
# are equals, and the interval of x4 just reaches zero. With 1,000 the
# intervals have shrunk to the size of the dots. They are those of a factorised
# posterior, which is rather too narrow than too wide. Inverse length scales
# compare inputs of one unit; for others pass the rows: ``from_estimator(model,
# X)``.
