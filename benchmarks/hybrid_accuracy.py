"""HybridGPLVM with missing entries: log-loss, RMSE of imputed entries, time.

The protocol: in each repeat (a draw, 0 and 1 by default), 30 % of all entries, or another share,
are removed at random and the rows are split into five stratified folds; everything, standardisation
included, is fitted on four of them. Imputed test entries are compared with the removed ones, in
standard deviations of the column's training entries. The error of the difference of the two
log-losses is its standard error over the draws. All models have their defaults, but for what the
options say.

`--labels` keeps the labels of so many rows of each class and all of X, and gives the log-loss of
the other rows, whose inputs the model sees, beside a fit to the labelled rows alone.
"""

import warnings
from time import perf_counter

import numpy as np
from common import Report, parser
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import HybridGPLVM

BUNDLED = {"wine": load_wine, "iris": load_iris, "breast_cancer": load_breast_cancer}
OTHERS = ["breast", "heart", "pima"]


def load(folder, name):
    """Complete inputs and labels."""
    if name in BUNDLED:
        return BUNDLED[name](return_X_y=True)
    with np.load(folder / "classification.npz") as file:
        table = file[f"{name}__data"]
    return table[:, :-1], (table[:, -1] > 0).astype(int)


def splits(X, y, seed, n_folds, share_missing):
    """X with missing entries, and the rows of training and test."""
    missing = X.copy()
    missing[np.random.default_rng(seed).random(X.shape) < share_missing] = np.nan
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    for train, test in folds.split(X, y):
        yield missing, train, test


def logistic():
    return make_pipeline(
        StandardScaler(), IterativeImputer(random_state=0), LogisticRegression(max_iter=1000)
    )


def rmse(filled, X, missing, unit):
    return float(np.sqrt(np.mean(((filled - X) / unit)[missing] ** 2)))


def measure(X, y, seed, n_folds, share_missing, parameters):
    """Means over the folds of one draw."""
    rows = []
    for holes, train, test in splits(X, y, seed, n_folds, share_missing):
        start = perf_counter()
        model = HybridGPLVM(random_state=0, **parameters).fit(holes[train], y[train])
        seconds = perf_counter() - start
        baseline = logistic().fit(holes[train], y[train])
        row = {
            "log-loss": log_loss(y[test], model.predict_proba(holes[test])),
            "logistic": log_loss(y[test], baseline.predict_proba(holes[test])),
        }
        if share_missing > 0.0:
            row |= compare_entries(model, holes[train], holes[test], X[test])
        rows.append({**row, "seconds": seconds})
    return mean_of(rows)


def measure_few_labels(X, y, seed, n_labels, parameters):
    """Log-loss of the rows without a label, which the model was shown or not."""
    rng = np.random.default_rng(seed)
    labelled = [rng.choice(np.flatnonzero(y == k), n_labels, replace=False) for k in np.unique(y)]
    known = np.isin(np.arange(len(y)), labelled)
    model = HybridGPLVM(random_state=0, missing_label=-1, **parameters)
    losses = {}
    for name, rows in (("log-loss", slice(None)), ("labelled rows alone", known)):
        model.fit(X[rows], np.where(known, y, -1)[rows])
        losses[name] = log_loss(y[~known], model.predict_proba(X[~known]))
    return losses


def compare_entries(model, train, test, truth):
    """Scores of the imputed entries of test rows."""
    missing, unit = np.isnan(test), np.nanstd(train, axis=0)
    filled, std = model.impute(test, return_std=True)
    inside = np.abs(filled - truth)[missing] < 1.96 * std[missing]
    return {
        "RMSE": rmse(filled, truth, missing, unit),
        "RMSE of mean": rmse(np.nanmean(train, axis=0), truth, missing, unit),
        "coverage": float(np.mean(inside)),
    }


def mean_of(rows):
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--dataset", nargs="*", default=[*BUNDLED, *OTHERS])
    cli.add_argument("--repeats", type=int, default=2)
    cli.add_argument("--first-draw", type=int, default=0, help="seed of the first repeat")
    cli.add_argument("--folds", type=int, default=5)
    cli.add_argument("--share-missing", type=float, default=0.3, help="0 for complete data")
    cli.add_argument("--prior-weight", type=float, help="instead of the default")
    cli.add_argument("--latents", help="instead of the default")
    cli.add_argument("--likelihood", help="instead of the default")
    cli.add_argument("--labels", type=int, help="labelled rows of each class")
    args = cli.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")  # the imputer's convergence
    options = {name: getattr(args, name) for name in ("prior_weight", "latents", "likelihood")}
    parameters = {name: value for name, value in options.items() if value is not None}
    draws = range(args.first_draw, args.first_draw + args.repeats)
    report = Report(args.json)
    for name in args.dataset:
        X, y = load(args.data, name)
        if args.labels is None:
            shares, other = (args.folds, args.share_missing), "logistic"
            rows = [measure(X, y, seed, *shares, parameters) for seed in draws]
        else:
            other = "labelled rows alone"
            rows = [measure_few_labels(X, y, seed, args.labels, parameters) for seed in draws]
        difference = [row["log-loss"] - row[other] for row in rows]
        error = float(np.std(difference, ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else None
        result = {**mean_of(rows), "difference": float(np.mean(difference)), "error": error}
        report.add(data=name, **result)


if __name__ == "__main__":
    main()
