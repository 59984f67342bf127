"""A hundred training rows: the defaults against scikit-learn's exact Gaussian process."""

import warnings
from time import perf_counter

import numpy as np
from common import Report, load, nlpd, parser
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

import skvbgp


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=["airfoil", "concrete", "bike", "protein"])
    cli.add_argument("--rows", type=int, default=100)
    cli.add_argument("--draws", type=int, default=20)
    cli.add_argument("--estimator", default="VBGPRegressor")
    args = cli.parse_args()
    estimator = getattr(skvbgp, args.estimator)
    estimator().fit(np.eye(5), np.arange(5.0))  # imports
    report, summaries = Report(args.json), []
    for name in args.datasets:
        X, y, _ = load(args.data, name)
        results = []
        for draw in range(args.draws):
            ours, exact = compare(estimator, X, y, args.rows, draw)
            results.append([*ours, *exact])
            row = dict(zip(COLUMNS, results[-1], strict=True))
            report.add(data=name, draw=draw, **row, better=bool(ours[0] <= exact[0]))
        summaries.append((name, np.array(results)))
    if not args.json:
        print()
    report = Report(args.json)
    for name, results in summaries:
        wins = int(np.sum(results[:, 0] <= results[:, 2]))
        medians = np.median(results, axis=0)
        middle = dict(zip((f"median {c}" for c in COLUMNS), medians, strict=True))
        longest = float(results[:, 1].max())
        report.add(data=name, wins=f"{wins} of {len(results)}", **middle, **{"max s": longest})


COLUMNS = ["NLPD", "fit s", "NLPD exact", "fit s exact"]


def compare(estimator, X, y, n, draw):
    """(NLPD on the other rows, seconds of fit) of both, trained on n random rows."""
    order = np.random.default_rng(draw).permutation(len(X))
    train, test = order[:n], order[n:]
    scaler = StandardScaler().fit(X[train])
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    models = [
        estimator(random_state=draw),
        GaussianProcessRegressor(kernel, normalize_y=True, random_state=draw),
    ]
    return [
        fit_and_score(
            model, scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]
        )
        for model in models
    ]


def fit_and_score(model, X, y, X_test, y_test):
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # length scales at their bounds
        model.fit(X, y)
    seconds = perf_counter() - start
    return nlpd(y_test, *model.predict(X_test, return_std=True)), seconds


if __name__ == "__main__":
    main()
