"""Two outputs, half of whose training targets are missing: models for each, and one of both.

The scores are those of the missing targets, and of other rows.
"""

from time import process_time

import numpy as np
from common import Report, load, parser, scores

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF

#: Columns that are outputs, by data set; the target is the last one.
COLUMNS = {"bike": [11, 12], "protein": [0, 5]}


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=["synthetic", *COLUMNS])
    cli.add_argument("--splits", type=int, nargs="+", default=[0, 2], help="seeds of synthetic")
    cli.add_argument("--rows", type=int, default=600, help="training rows; synthetic has 200")
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.datasets:
        for split in args.splits:
            if name == "synthetic":
                data = draw_functions(split)
            else:
                data = split_columns(*load(args.data, name), COLUMNS[name], split, args.rows)
            for how in (None, "learned"):
                report.add(data=name, split=split, outputs=str(how), **compare(*data, how))


def draw_functions(seed, n=200, d=3, correlation=0.95, noise=0.1):
    """Two correlated functions of a squared exponential kernel, and as many test rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (2 * n, d))
    L = np.linalg.cholesky(RBF(1.0)(X) + 1e-8 * np.eye(2 * n))
    first, other = (L @ rng.standard_normal((2 * n, 2))).T
    second = correlation * first + np.sqrt(1.0 - correlation**2) * other
    Y = np.column_stack([first, second]) + noise * rng.standard_normal((2 * n, 2))
    Y = Y * [1.0, 20.0] + [0.0, 5.0]
    return X[:n], Y[:n], X[n:], Y[n:], rng.random((n, 2)) < 0.5


def split_columns(X, y, test_mask, columns, split, n, n_test=500):
    """Random rows of a split, some of whose columns are outputs."""
    table, test = np.column_stack([X, y]), test_mask[:, split]
    inputs = np.delete(table, columns, axis=1)
    rng = np.random.default_rng(split)
    train = rng.permutation(np.flatnonzero(~test))[:n]
    test = rng.permutation(np.flatnonzero(test))[:n_test]
    Y, missing = table[:, columns], rng.random((len(train), len(columns))) < 0.5
    return inputs[train], Y[train], inputs[test], Y[test], missing


def compare(X, Y, X_test, Y_test, missing, how):
    """Scores per value, and seconds of the processor for the fit."""
    model = VBGPRegressor(output_covariance=how, random_state=0)
    start = process_time()
    model.fit(X, np.where(missing, np.nan, Y))
    seconds = process_time() - start
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
