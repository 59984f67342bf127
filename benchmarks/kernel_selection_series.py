"""Forecasts of time series by VBKSRegressor with its defaults, beside a smooth Gaussian process.

A series NAME of timeseries.npz is the arrays NAME__train and NAME__test with columns t and y;
the test rows are the last ones. Errors are in units of the standard deviation of the training y.
NLPD and the coverage of the 95 % intervals are also given for the first, second and last third of
the test rows. With --peers an interpreter that has statsmodels adds exponential smoothing.
"""

import json
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
from common import Report, load_series, parser, scores
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skvbgp import VBKSRegressor

PARTS = ("first", "second", "last")


def reference(t, y, t_test):
    kernel = ConstantKernel() * RBF(0.3) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(t, y)
    return model.predict(t_test, return_std=True)


def smooth_exponentially(peers, options):
    """Forecasts by series, from the first interpreter that has statsmodels."""
    script = str(Path(__file__).parent / "run_ets.py")
    command = [script, "--data", str(options.data), "--file", options.file, "--only", options.only]
    for python in peers:
        done = subprocess.run([python, *command], stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            lines = map(json.loads, done.stdout.splitlines())
            return {line["series"]: line["mean"] for line in lines}
    return {}


def score_parts(model, t, y):
    """NLPD and coverage of all rows, and of their thirds in the order of time."""
    low, high = model.predict_interval(t)
    nlpd, inside = -model.log_predictive_density(t, y), (low < y) & (y < high)
    parts = np.array_split(np.argsort(t[:, 0]), len(PARTS))
    result = {"NLPD": np.mean(nlpd), "coverage": np.mean(inside)}
    for name, rows in zip(PARTS, parts, strict=True):
        result |= {f"NLPD {name}": np.mean(nlpd[rows]), f"coverage {name}": np.mean(inside[rows])}
    return {name: float(value) for name, value in result.items()}


def main():
    arguments = parser(__doc__, data=True)
    arguments.add_argument("--file", default="timeseries", help="its name without .npz")
    arguments.add_argument("--kernels", default="auto", choices=["auto", "grammar"])
    arguments.add_argument("--depth", type=int, default=3, help="of the grammar")
    arguments.add_argument("--n-jobs", type=int, default=1)
    arguments.add_argument("--peers", nargs="+", default=[], metavar="PYTHON")
    arguments.add_argument(
        "--only", metavar="TEXT", default="", help="series with this in the name"
    )
    options = arguments.parse_args()
    report, smoothed = Report(options.json), smooth_exponentially(options.peers, options)
    for name, t, y, t_test, y_test in load_series(options.data, options.file):
        if options.only not in name:
            continue
        start = time.process_time()
        model = VBKSRegressor(
            options.kernels, depth=options.depth, random_state=0, n_jobs=options.n_jobs
        ).fit(t, y)
        seconds = time.process_time() - start
        rmse = scores(y_test, *model.predict(t_test, return_std=True))["RMSE"]
        row = {"RMSE": rmse}
        row["of the RBF's"] = rmse / scores(y_test, *reference(t, y, t_test))["RMSE"]
        if smoothed:
            mean = smoothed.get(name)
            error = None if mean is None else float(np.sqrt(np.mean((y_test - mean) ** 2)))
            row["of smoothing's"] = None if error is None else rmse / error
        report.add(
            series=name[:30], n=len(y), **{"CPU s": seconds}, **row,
            **score_parts(model, t_test, y_test), best=model.best_kernel_[0],
        )  # fmt: skip


if __name__ == "__main__":
    main()
