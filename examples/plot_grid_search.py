"""
Grid search with progress
=========================

All estimators of skvbgp take part in scikit-learn's callbacks (experimental,
scikit-learn 1.9). Here :class:`~sklearn.callback.ProgressBar` shows how far a
grid search in a pipeline is, and :class:`~sklearn.callback.ScoringMonitor`
records the error on the training rows after every pass of every fit. The
progress bar goes on the outermost estimator, the monitor on the one whose
passes are scored.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import VBDTCRegressor

X, y = make_friedman1(3000, noise=1.0, random_state=0)
sizes, n_splits = [20, 40, 80], 3

monitor = ScoringMonitor(scoring="neg_root_mean_squared_error")
regressor = VBDTCRegressor(max_iter=15, random_state=0).set_callbacks(monitor)
pipeline = make_pipeline(StandardScaler(), regressor)
search = GridSearchCV(
    pipeline, {"vbdtcregressor__n_inducing": sizes}, cv=n_splits
)
search.set_callbacks(ProgressBar()).fit(X, y)
print(f"best: {search.best_params_}, R2 {search.best_score_:.3f}")

# %%
# An entry of the log knows its place in the tree of tasks: search, fit number
# k (candidate after candidate, with all splits of each), step of the pipeline,
# pass.

curves = {}
for entry in monitor.get_logs().data:
    path = entry["task_id_path"]
    # A pass of a fit of the search, not of the refit.
    if path[:2] == (0, 0) and len(path) == 5:
        error = -entry["neg_root_mean_squared_error"]
        curves.setdefault(path[2], {})[path[4]] = error

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for k, curve in sorted(curves.items()):
    size = sizes[k // n_splits]
    passes = sorted(curve)
    axes[0].plot(
        np.array(passes) + 1,
        [curve[i] for i in passes],
        color=f"C{k // n_splits}",
        lw=1,
        label=f"{size} inducing inputs" if k % n_splits == 0 else None,
    )
axes[0].axhline(1.0, color="k", ls=":", lw=1)
axes[0].set(
    title="Training error by pass (RMSE), three splits",
    xlabel="pass",
    ylim=(0.9, None),
)
axes[0].text(1, 1.02, "noise", va="bottom")
axes[0].legend()
results = search.cv_results_
scores, spread = results["mean_test_score"], results["std_test_score"]
axes[1].errorbar(range(len(sizes)), scores, spread, fmt="o", capsize=4)
axes[1].set(title="R2 of held-out rows", xlabel="inducing inputs")
axes[1].set_xticks(range(len(sizes)), sizes)
plt.show()
