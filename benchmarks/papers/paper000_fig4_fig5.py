"""Paper 000, Figs. 4 and 5: draws of the hyperparameters in prediction, and their posterior.

Fig. 4: RMSE of VBPIC against passes, by the number of draws that a prediction averages over; one
draw is a point estimate. Fig. 5: 95 % intervals of the inverse length scales of the last fit, for
inputs of unit spread, and the mean of the logarithms of their variances (MLV). The paper's sets,
TWITTER (d = 77) and AIRLINE (d = 8), are replaced by bike (d = 17) and aimpeak (d = 6). 100
inducing inputs as in the paper, blocks of about 200 rows, two in a mini-batch.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import load_split
from figures import Options, Result, draw_curves, fits, pivoted, rmse

from skvbgp import VBPICRegressor
from skvbgp.inspection import RelevanceDisplay

DATA_SETS = ["bike", "aimpeak"]
N_INDUCING, BLOCK_ROWS, BATCH_SIZE = 100, 200, 400


def run(options: Options) -> Result:
    passes, draws = [1, 4] if options.quick else [1, 4, 16], [1, 4, 16]
    figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    tables, relevance = {}, []
    for name, (top, bottom) in zip(DATA_SETS, axes.T, strict=True):
        X, y, X_test, y_test = load_split(options.data, name, 0)
        if options.quick:
            X, y = X[::4], y[::4]
        regressor = VBPICRegressor(
            N_INDUCING,
            noise_kernel=None,
            n_blocks=len(y) // BLOCK_ROWS,
            batch_size=BATCH_SIZE,
            random_state=options.seed,
        )
        rows = []
        for n_passes, _, model in fits(regressor, X, y, passes):
            for n_draws in draws:
                error = rmse(y_test, model.set_params(n_samples=n_draws).predict(X_test))
                rows.append({"passes": n_passes, "draws": n_draws, "RMSE": error})
        tables[f"Fig. 4, {name}: RMSE by passes and draws"] = pivoted(
            rows, "passes", "draws", "RMSE"
        )
        relevance.append({"data": name} | log_variances(model, X))
        draw_curves(top, rows, "draws", label="draws = {}")
        top.set_title(f"Fig. 4: {name}")
        RelevanceDisplay.from_estimator(model, X, ax=bottom)
        bottom.set_title(f"Fig. 5: {name}, {n_passes} passes")
        bottom.xaxis.label.set_size("small")
    tables["Fig. 5: inverse length scales for inputs of unit spread"] = relevance
    return Result(figure, tables)


def log_variances(model, X):
    """Number of inputs, MLV, and the range of the posterior means."""
    spread = X.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    mean = model.inverse_length_scale_mean_ * spread
    variance = model.inverse_length_scale_var_ * spread**2
    return {
        "d": len(mean),
        "MLV": float(np.mean(np.log(variance))),
        "smallest mean": float(mean.min()),
        "largest mean": float(mean.max()),
        "median std": float(np.median(np.sqrt(variance))),
    }
