"""Several outputs: models for each, with hyperparameters of their own or shared, and one of all.

The scores are those of targets that are missing in training, and of other rows.
"""

from time import process_time

import numpy as np
from common import Report, load, parser, scores

import skvbgp
from skvbgp.kernels import RBF

#: Columns that are outputs, by data set; the target is the last one.
COLUMNS = {"bike": [11, 12], "protein": [0, 5], "aimpeak": [5, 6], "flights": [1, 2]}
#: What is compared.
MODELS = {
    "own": {},
    "shared": {"output_hyperparameters": "shared"},
    "learned": {"output_covariance": "learned"},
}


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=["synthetic", "bike", "protein"])
    cli.add_argument("--models", nargs="+", default=["own", "learned"], choices=MODELS)
    cli.add_argument("--estimator", default="VBGPRegressor", help="by its name in skvbgp")
    cli.add_argument("--splits", type=int, nargs="+", default=[0, 2], help="seeds of synthetic")
    cli.add_argument("--rows", type=int, default=600, help="training rows; synthetic has 200")
    cli.add_argument("--missing", type=float, default=0.5, help="share of the training targets")
    cli.add_argument("--draws", type=int, default=1, help="sets of training rows for each split")
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.datasets:
        for split in args.splits:
            if name == "synthetic":
                sets = [draw_functions(split, args.missing)]
            elif name == "kindred":
                sets = [draw_kindred(split + 100 * i, args.rows) for i in range(args.draws)]
            else:
                source = *load(args.data, name), COLUMNS[name], split, args.rows, args.missing
                sets = [split_columns(*source, draw=i) for i in range(args.draws)]
            for how in args.models:
                results = [compare(*data, args.estimator, how) for data in sets]
                means = {key: np.mean([one[key] for one in results]) for key in results[0]}
                report.add(data=name, split=split, outputs=how, **means)


def draw_functions(seed, missing, n=200, d=3, correlation=0.95, noise=0.1):
    """Two correlated functions of a squared exponential kernel, and as many test rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (2 * n, d))
    L = np.linalg.cholesky(RBF(1.0)(X) + 1e-8 * np.eye(2 * n))
    first, other = (L @ rng.standard_normal((2 * n, 2))).T
    second = correlation * first + np.sqrt(1.0 - correlation**2) * other
    Y = np.column_stack([first, second]) + noise * rng.standard_normal((2 * n, 2))
    Y = Y * [1.0, 20.0] + [0.0, 5.0]
    return X[:n], Y[:n], X[n:], Y[n:], rng.random((n, 2)) < missing


def draw_kindred(seed, n, t=5, n_test=500):
    """Independent functions of one kernel, whose inputs do not all matter, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n + n_test, 5))
    L = np.linalg.cholesky(RBF([1.0, 2.0, 4.0, 20.0, 20.0])(X) + 1e-8 * np.eye(n + n_test))
    Y = L @ rng.standard_normal((n + n_test, t)) + 0.2 * rng.standard_normal((n + n_test, t))
    return X[:n], Y[:n], X[n:], Y[n:], np.zeros((n, t), dtype=bool)


def split_columns(X, y, test_mask, columns, split, n, missing, draw=0, n_test=500):
    """Random rows of a split, some of whose columns are outputs."""
    table, test = np.column_stack([X, y]), test_mask[:, split]
    inputs = np.delete(table, columns, axis=1)
    rng = np.random.default_rng([split, draw] if draw else split)
    train = rng.permutation(np.flatnonzero(~test))[:n]
    test = rng.permutation(np.flatnonzero(test))[:n_test]
    Y, hidden = table[:, columns], rng.random((len(train), len(columns))) < missing
    return inputs[train], Y[train], inputs[test], Y[test], hidden


def compare(X, Y, X_test, Y_test, missing, estimator, how):
    """Scores per value, and seconds of the processor for the fit."""
    model = getattr(skvbgp, estimator)(**MODELS[how], random_state=0)
    start = process_time()
    model.fit(X, np.where(missing, np.nan, Y))
    seconds = process_time() - start
    gaps = {"NLPD": np.nan, "coverage": np.nan}
    if missing.any():
        mean, std = model.predict(X, return_std=True)
        gaps = scores(Y[missing], mean[missing], std[missing])
    new = scores(Y_test, *model.predict(X_test, return_std=True))
    return {
        "NLPD missing": gaps["NLPD"],
        "coverage missing": gaps["coverage"],
        "NLPD test": new["NLPD"],
        "coverage test": new["coverage"],
        "fit s": seconds,
    }


if __name__ == "__main__":
    main()
