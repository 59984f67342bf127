"""Regressors with missing entries of X, beside imputers in front of them.

Entries are missing at random, in training and test rows.
"""

from time import process_time

import numpy as np
from common import Report, load, parser, scores
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.pipeline import make_pipeline

import skvbgp

#: Training rows by data set.
ROWS = {"concrete": 900, "airfoil": 1_300, "bike": 2_000}
IMPUTERS = {
    "mean": lambda: [SimpleImputer()],
    "iterative": lambda: [IterativeImputer(random_state=0)],
    "NaN": lambda: [],
}
ESTIMATORS = [
    "VBGPRegressor",
    "VBDTCRegressor",
    "VBFITCRegressor",
    "VBPITCRegressor",
    "VBPICRegressor",
    "SVBSSGPRegressor",
    "DecoupledGPRegressor",
    "VBKSRegressor",
]


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=list(ROWS), choices=ROWS)
    cli.add_argument("--splits", type=int, nargs="+", default=[1, 2])
    cli.add_argument("--models", nargs="+", default=list(IMPUTERS), choices=IMPUTERS)
    cli.add_argument("--estimator", default=ESTIMATORS[0], choices=ESTIMATORS)
    cli.add_argument("--missing", type=float, default=0.2, help="share of the entries")
    cli.add_argument("--rows", type=int, default=max(ROWS.values()), help="at most, of training")
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.datasets:
        for split in args.splits:
            n = min(args.rows, ROWS[name])
            X, y, X_test, y_test = make_holes(*load(args.data, name), split, n, args.missing)
            for how in args.models:
                estimator = getattr(skvbgp, args.estimator)(random_state=0)
                model, start = make_pipeline(*IMPUTERS[how](), estimator), process_time()
                found = scores(y_test, *model.fit(X, y).predict(X_test, return_std=True))
                report.add(data=name, split=split, gaps=how, **found, cpu_s=process_time() - start)


def make_holes(X, y, test_mask, split, n, missing, n_test=500):
    """Random rows of a split, some of whose entries are NaN."""
    rng = np.random.default_rng(split)
    X = np.where(rng.random(X.shape) < missing, np.nan, X)
    test = test_mask[:, split]
    train = rng.permutation(np.flatnonzero(~test))[:n]
    test = rng.permutation(np.flatnonzero(test))[:n_test]
    return X[train], y[train], X[test], y[test]


if __name__ == "__main__":
    main()
