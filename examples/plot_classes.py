"""
Confidence far from the data
============================

Three classes of 60, 90 and 150 rows, and the highest probability of a class at
every place. :class:`~skvbgp.gp.VBGPClassifier` is sure where rows of one class
are, and far from all rows falls back on the frequencies of the classes: .5 for
the most frequent one. Logistic regression is the surer the farther away a
place is, and trees go on with what they say at the edge of the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from skvbgp import VBGPClassifier

rng = np.random.default_rng(0)
y = np.repeat([0, 1, 2], [60, 90, 150])
angle = rng.uniform(0.0, np.pi, 300) + np.array([0.0, 2.1, 4.2])[y]
radius = 1.0 + 0.4 * angle / np.pi + 0.12 * rng.standard_normal(300)
X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])

models = [
    VBGPClassifier(random_state=0),
    LogisticRegression(),
    HistGradientBoostingClassifier(random_state=0),
]
side = np.linspace(-9.0, 9.0, 121)
places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, model in zip(axes, models, strict=True):
    p = model.fit(X, y).predict_proba(places)
    image = ax.pcolormesh(
        side, side, p.max(axis=1).reshape(121, 121), vmin=1 / 3, vmax=1.0
    )
    for label, color in enumerate(["C1", "C3", "w"]):
        ax.plot(*X[y == label].T, ".", color=color, ms=3)
    ax.set_title(f"{type(model).__name__}\nat a corner: {p[0].round(2)}")
    ax.set_aspect("equal")
fig.colorbar(image, label="highest probability of a class")
plt.show()
