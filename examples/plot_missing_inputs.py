"""
Classification with missing inputs
==================================

Breast tumours, benign or malignant, from ten measurements of which half are
missing at random, in training and in prediction.
:class:`~skvbgp.gp.VBGPClassifier` takes NaN as it is, and so does
:class:`~skvbgp.ep.EPDTCClassifier`, in less time. The log-loss punishes errors
and over-confidence alike: lower is better.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skvbgp import EPDTCClassifier, VBGPClassifier

X, y = load_breast_cancer(return_X_y=True)
X = X[:, :10]
X[np.random.default_rng(0).random(X.shape) < 0.5] = np.nan
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, random_state=0
)

models = {
    "VBGPClassifier": VBGPClassifier(random_state=0),
    "filled in with the mean": make_pipeline(
        SimpleImputer(), VBGPClassifier(random_state=0)
    ),
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    "EPDTCClassifier": EPDTCClassifier(50, random_state=0),
}
probabilities = {}
for name, model in models.items():
    probabilities[name] = model.fit(X_train, y_train).predict_proba(X_test)
    print(f"{name:24}log-loss {log_loss(y_test, probabilities[name]):.3f}")

# %%
# A row that says little gets a probability near the base rate. Where entries
# are filled in, the model takes them at face value, and trees are sure of what
# they cannot know. So where a wrong diagnosis is dear, the rows to measure
# again are those whose probability is neither high nor low.

n_missing = np.isnan(X_test).sum(axis=1)
fig, axes = plt.subplots(
    1, 3, figsize=(11, 4), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, p) in zip(axes, probabilities.items(), strict=False):
    for label, marker in enumerate("xo"):
        rows = y_test == label
        jitter = 0.3 * np.random.default_rng(1).uniform(-1.0, 1.0, rows.sum())
        ax.plot(n_missing[rows] + jitter, p[rows, 1], marker, alpha=0.5)
    ax.set(title=name, xlabel="missing entries of the row")
axes[0].set_ylabel("probability of benign")
axes[0].legend(["malignant", "benign"], loc="center left")
plt.show()
