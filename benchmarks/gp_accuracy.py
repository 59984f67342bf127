"""VBGPRegressor with its defaults on real data, or other regressors beside it.

RMSE, NLPD, coverage of the 95 % intervals overall and in each quarter of the predicted standard
deviations, seconds, and processor seconds of both, in this process. Inputs are standardised. Any
public regressor may be named; `--parameters n_inducing=100` is another value than the default.

`--beside` adds scikit-learn's: "exact", GaussianProcessRegressor with a length scale for each
input, on a random subset of the rows, with the kernel of largest evidence among a squared
exponential, Matern-3/2 and Matern-1/2; and "trees",
HistGradientBoostingRegressor, whose standard deviation is one number, that of its residuals on a
tenth of the rows that is held out for this; then it is fitted to all of them.
"""

from time import perf_counter, process_time

import numpy as np
from common import Report, literals, load_split, parser, scores
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skvbgp

DATASETS = ["kin40k", "protein", "flights", "aimpeak", "bike", "airfoil", "concrete"]


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=DATASETS)
    cli.add_argument("--splits", nargs="+", type=int, default=[0, 2])
    cli.add_argument("--seeds", nargs="+", type=int, default=[0])
    cli.add_argument("--estimators", nargs="+", default=["VBGPRegressor"])
    cli.add_argument("--parameters", nargs="+", default=[], metavar="NAME=VALUE")
    cli.add_argument("--beside", nargs="+", choices=["exact", "trees"], default=[])
    cli.add_argument("--exact-rows", type=int, default=1500, help="most rows of the exact one")
    args = cli.parse_args()
    parameters = literals(args.parameters)
    report = Report(args.json)
    for name in args.datasets:
        for split in args.splits:
            data = load_split(args.data, name, split)
            for seed in args.seeds:
                for estimator in args.estimators:
                    model = getattr(skvbgp, estimator)(random_state=seed, **parameters)
                    report.add(data=name, split=split, seed=seed, **measure(model, *data))
                for peer in args.beside:
                    model = Trees(seed) if peer == "trees" else Exact(args.exact_rows, seed)
                    report.add(data=name, split=split, seed=seed, **measure(model, *data))


class Exact(RegressorMixin, BaseEstimator):
    """scikit-learn's Gaussian process of at most so many rows."""

    def __init__(self, n_rows, seed):
        self.n_rows, self.seed = n_rows, seed

    def fit(self, X, y):
        rows = np.random.default_rng(self.seed).permutation(len(y))[: self.n_rows]
        ones = np.ones(X.shape[1])
        models = [
            GaussianProcessRegressor(
                ConstantKernel() * kernel + WhiteKernel(0.1),
                normalize_y=True,
                random_state=self.seed,
            ).fit(X[rows], y[rows])
            for kernel in (RBF(ones), Matern(ones, nu=1.5), Matern(ones, nu=0.5))
        ]
        self.model_ = max(models, key=lambda model: model.log_marginal_likelihood_value_)
        return self

    def predict(self, X, return_std=False):
        return self.model_.predict(X, return_std=return_std)

    @property
    def name(self):
        return f"GaussianProcessRegressor, {len(self.model_.X_train_)} rows"


class Trees(RegressorMixin, BaseEstimator):
    """Gradient boosting, and the standard deviation of its residuals on rows held out."""

    name = "HistGradientBoostingRegressor"

    def __init__(self, seed):
        self.seed = seed

    def fit(self, X, y):
        trees = HistGradientBoostingRegressor(
            max_iter=1000, early_stopping=True, random_state=self.seed
        )
        X_most, X_held, y_most, y_held = train_test_split(
            X, y, test_size=0.1, random_state=self.seed
        )
        residuals = y_held - clone(trees).fit(X_most, y_most).predict(X_held)
        self.std_ = np.sqrt(np.mean(residuals**2))
        self.model_ = trees.fit(X, y)
        return self

    def predict(self, X, return_std=False):
        mean = self.model_.predict(X)
        return (mean, np.full(len(mean), self.std_)) if return_std else mean


def measure(model, X, y, X_test, y_test):
    pipeline = make_pipeline(StandardScaler(), model)
    start, processor = perf_counter(), process_time()
    pipeline.fit(X, y)
    fitted = perf_counter()
    mean, std = pipeline.predict(X_test, return_std=True)
    seconds = {"fit s": fitted - start, "predict s": perf_counter() - fitted}
    seconds["CPU s"] = process_time() - processor
    within, order = np.abs(y_test - mean) < 1.96 * std, np.argsort(std)
    quarters = [f"{within[part].mean():.2f}" for part in np.array_split(order, 4)]
    row = {"estimator": getattr(model, "name", type(model).__name__), **scores(y_test, mean, std)}
    return row | {"by quarter": " ".join(quarters) if np.ptp(std) else None} | seconds


if __name__ == "__main__":
    main()
