"""Paper 000, Figs. 2 and 3 and Table I: VBDTC+, VBFITC+, VBPIC+ by passes, and other models.

Figs. 2 and 3: RMSE, NLPD (the paper's MNLP) and training time against passes, and RMSE against
time. Flights (d = 2) and aimpeak (d = 6) stand in for AIRLINE (2 million rows, d = 8), bike
(d = 17) for TWITTER (d = 77). 100 inducing inputs as in the paper, here learned; blocks of about
200 rows, two in a mini-batch, where the paper's mini-batch is one block. One split; the paper
averages over five.

Table I, after the most passes: PIC+ is VBPIC+ with one draw of the hyperparameters, which is how
the paper reads PIC; SVIGP has point estimates and one basis of 100 points for mean and covariance;
VSSGPR has 50 frequencies; rBCM has experts of 256 random rows. Dist-VGP is left out: its bound is
SVIGP's, by gradients of all rows. Times are CPU seconds of this process.
"""

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from common import load_split, scores
from figures import Options, Result, draw_curves, fits, pivoted, rmse
from rbcm import RobustCommittee

from skvbgp import (
    DecoupledGPRegressor,
    SVBSSGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBPICRegressor,
)

#: The figure, and every how many training rows a quick run uses.
DATA_SETS = {"flights": ("Fig. 2", 30), "aimpeak": ("Fig. 2", 6), "bike": ("Fig. 3", 6)}
N_INDUCING, BLOCK_ROWS, BATCH_SIZE = 100, 200, 400


def run(options: Options) -> Result:
    passes = [1, 4] if options.quick else [1, 2, 4, 8]
    figure, axes = plt.subplots(3, 4, figsize=(15, 10), layout="constrained")
    tables, finals = {}, []
    for (name, (title, stride)), panels in zip(DATA_SETS.items(), axes, strict=True):
        X, y, X_test, y_test = load_split(options.data, name, 0)
        if options.quick:
            X, y = X[::stride], y[::stride]
        data = X, y, X_test, y_test
        rows, one_draw = learning_curves(*data, passes, options.seed)
        for value in ("RMSE", "NLPD", "seconds"):
            tables[f"{title}, {name}: {value} by passes"] = pivoted(rows, "passes", "model", value)
        ends = {row["model"]: row["RMSE"] for row in rows if row["passes"] == passes[-1]}
        ends |= {"PIC+": one_draw} | others(*data, passes[-1], options.seed)
        finals.append({"data": name} | ends)
        for axis, value in zip(panels, ("RMSE", "NLPD", "seconds"), strict=False):
            draw_curves(axis, rows, "model", value=value)
            axis.set_title(f"{title}: {name}")
        draw_by_time(panels[3], rows)
    return Result(figure, tables | {"Table I: RMSE after the most passes": finals})


def learning_curves(X, y, X_test, y_test, passes, seed):
    """Rows with model, passes, RMSE, NLPD, seconds; and VBPIC+'s last RMSE with one draw."""
    common = dict(solver="stochastic", batch_size=BATCH_SIZE, random_state=seed)
    models = {
        "VBDTC+": VBDTCRegressor(N_INDUCING, **common),
        "VBFITC+": VBFITCRegressor(N_INDUCING, **common),
        "VBPIC+": VBPICRegressor(
            N_INDUCING, noise_kernel=None, n_blocks=len(y) // BLOCK_ROWS, **common
        ),
    }
    rows = []
    for label, regressor in models.items():
        for n_passes, seconds, model in fits(regressor, X, y, passes, process_time):
            score = scores(y_test, *model.predict(X_test, return_std=True))
            score = {name: score[name] for name in ("RMSE", "NLPD")}
            rows.append({"model": label, "passes": n_passes, **score, "seconds": seconds})
    return rows, rmse(y_test, model.set_params(n_samples=1).predict(X_test))


def others(X, y, X_test, y_test, n_passes, seed):
    """RMSE of the other models of Table I."""
    models = {
        "SVIGP": DecoupledGPRegressor(
            0, N_INDUCING, generalized_length_scales=False, batch_size=BATCH_SIZE,
            max_iter=n_passes, random_state=seed,
        ),
        "VSSGPR": SVBSSGPRegressor(
            N_INDUCING // 2, gamma=1.0, posterior="factorised", objective="bound",
            max_iter=n_passes, random_state=seed,
        ),
    }  # fmt: skip
    errors = {label: rmse(y_test, m.fit(X, y).predict(X_test)) for label, m in models.items()}
    committee = RobustCommittee(random_state=seed).fit(X, y)
    return errors | {"rBCM": rmse(y_test, committee.predict(X_test)[0])}


def draw_by_time(axis, rows):
    """RMSE against seconds of training."""
    for model in dict.fromkeys(row["model"] for row in rows):
        points = [(row["seconds"], row["RMSE"]) for row in rows if row["model"] == model]
        axis.plot(*np.transpose(points), marker=".", label=model)
    axis.set(xlabel="seconds", ylabel="RMSE")
    axis.legend()
