"""Extrapolation of time series by all 144 kernels, beside one smooth kernel of scikit-learn's.

A series NAME of timeseries.npz is the arrays NAME__train and NAME__test with columns t and y;
the test rows are the last ones. Errors are in units of the standard deviation of the training y.
"""

import time
import warnings

import numpy as np
from common import Report, parser, scores
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skvbgp import VBKSRegressor


def load_series(folder):
    """Yield name, t_train, y_train, t_test, y_test, with standardised t and y."""
    with np.load(folder / "timeseries.npz") as file:
        for name in sorted({key.rsplit("__", 1)[0] for key in file}):
            train, test = file[f"{name}__train"], file[f"{name}__test"]
            mean, std = train.mean(axis=0), train.std(axis=0)
            train, test = (train - mean) / std, (test - mean) / std
            yield name, train[:, :1], train[:, 1], test[:, :1], test[:, 1]


def reference(t, y, t_test):
    kernel = ConstantKernel() * RBF(0.3) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(t, y)
    return model.predict(t_test, return_std=True)


def main():
    arguments = parser(__doc__, data=True)
    arguments.add_argument("--depth", type=int, default=3)
    arguments.add_argument("--n-jobs", type=int, default=2)
    arguments.add_argument(
        "--only", metavar="TEXT", default="", help="series with this in the name"
    )
    options = arguments.parse_args()
    report, rows = Report(options.json), []
    for name, t, y, t_test, y_test in load_series(options.data):
        if options.only not in name:
            continue
        start = time.perf_counter()
        model = VBKSRegressor(depth=options.depth, random_state=0, n_jobs=options.n_jobs).fit(t, y)
        seconds = time.perf_counter() - start
        single = scores(y_test, *model.estimators_[0].predict(t_test, return_std=True))
        average = scores(y_test, *model.predict(t_test, return_std=True))
        smooth = scores(y_test, *reference(t, y, t_test))
        row = {
            "ratio of RMSE": average["RMSE"] / smooth["RMSE"],
            "NLPD": average["NLPD"],
            "NLPD of best kernel": single["NLPD"],
            "NLPD of RBF": smooth["NLPD"],
        }
        rows.append(list(row.values()))
        report.add(series=name, n=len(y), seconds=seconds, best=model.best_kernel_[0], **row)
    report.add(
        series="mean", n=None, seconds=None, best=None,
        **dict(zip(row, map(float, np.mean(rows, axis=0)), strict=True)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
