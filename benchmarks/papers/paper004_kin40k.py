"""Paper 004, its comparison of bases on kin40k in the place of its robots' dynamics.

nMSE (mean square error over the variance of y) and variational lower bound, as in Tables 3-6.
SVDGP is the completely decoupled parametrization of the paper; the hybrid is the one of its
appendix, "orthogonal" the package's default. SVI has one basis for mean and covariance: VBDTC, and
the peers' SVGP. VSGPR trains on as many rows as SVDGP has points of the mean's basis, all at once;
GPR is exact on those rows. iVSGPR, incremental with one basis for mean and covariance, whose points
have length scales of their own, and natural gradients, is our model without a basis of the mean.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from common import load_split
from figures import Options, Result
from peers import learning_curve
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import DecoupledGPRegressor, VBDTCRegressor

BATCH_SIZE = 1024


def run(options: Options) -> Result:
    passes, n_mean, n_cov, n_exact = (4, 500, 64, 500) if options.quick else (28, 2000, 200, 1000)
    X, y, X_test, y_test = load_split(options.data, "kin40k", 0)
    subset = np.random.default_rng(options.seed).choice(len(y), n_mean, replace=False)
    common = dict(max_iter=passes, random_state=options.seed)
    runs = {
        f"SVDGP, {kind}": (
            DecoupledGPRegressor(n_mean, n_cov, parametrization=kind, **common),
            slice(None),
        )
        for kind in ("decoupled", "hybrid", "orthogonal")
    } | {
        "iVSGPR: shared basis": (DecoupledGPRegressor(0, n_cov, **common), slice(None)),
        "SVI: VBDTC": (VBDTCRegressor(n_cov, solver="stochastic", **common), slice(None)),
        "VSGPR: VBDTC, subset": (
            VBDTCRegressor(n_cov, solver="collapsed", random_state=options.seed),
            subset,
        ),
        "GPR, subset": (exact_gp(X.shape[1], options.seed), subset[:n_exact]),
    }
    rows = []
    for label, (model, chosen) in runs.items():
        start = perf_counter()
        model.fit(X[chosen], y[chosen])
        seconds = perf_counter() - start
        error = np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test)
        rows.append(
            {
                "model": label,
                "rows": len(y[chosen]),
                "nMSE": float(error),
                "lower bound": getattr(model, "lower_bound_", None),
                "seconds": seconds,
            }
        )
    for peer, python in options.peers.items():
        curve = learning_curve(
            peer, python, options, dataset="kin40k", passes=[passes],
            n_inducing=n_cov, batch_size=BATCH_SIZE, n_rows=len(y),
        )  # fmt: skip
        rows.append(
            {
                "model": f"SVI: {curve[-1]['model']}",
                "rows": len(y),
                "nMSE": curve[-1]["RMSE"] ** 2 / float(np.var(y_test)),
                "lower bound": None,
                "seconds": curve[-1]["seconds"],
            }
        )
    title = f"kin40k, {n_mean} points of the mean's basis, {n_cov} of the covariance's"
    return Result(picture(rows), {title: rows})


def exact_gp(d, seed):
    """scikit-learn's exact Gaussian process with the same kernel."""
    kernel = ConstantKernel() * RBF(np.full(d, 2.0)) + WhiteKernel(0.1)
    return make_pipeline(
        StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    )


def picture(rows):
    figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    rows = rows[::-1]
    bars = axis.barh([row["model"] for row in rows], [row["nMSE"] for row in rows])
    axis.bar_label(bars, fmt="%.3f", padding=3)
    axis.margins(x=0.15)
    axis.set(xlabel="nMSE of the test rows", title="kin40k")
    return figure
