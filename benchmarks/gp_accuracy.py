"""VBGPRegressor with its defaults on real data, or other regressors beside it.

RMSE, NLPD, coverage of the 95 % intervals overall and in each quarter of the predicted standard
deviations, seconds. Inputs are standardised. Any public regressor may be named.
"""

from time import perf_counter

import numpy as np
from common import Report, load_split, parser, scores
from sklearn.ensemble import HistGradientBoostingRegressor
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
    cli.add_argument(
        "--trees", action="store_true", help="gradient boosting, whose mean is compared"
    )
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.datasets:
        for split in args.splits:
            data = load_split(args.data, name, split)
            for seed in args.seeds:
                for estimator in args.estimators:
                    model = getattr(skvbgp, estimator)(random_state=seed)
                    report.add(data=name, split=split, seed=seed, **measure(model, *data))
            if args.trees:
                model = HistGradientBoostingRegressor(max_iter=1000, early_stopping=True)
                report.add(data=name, split=split, seed=0, **measure(model, *data))


def measure(model, X, y, X_test, y_test):
    has_std = not isinstance(model, HistGradientBoostingRegressor)
    pipeline = make_pipeline(StandardScaler(), model)
    start = perf_counter()
    pipeline.fit(X, y)
    fitted = perf_counter()
    predicted = pipeline.predict(X_test, **({"return_std": True} if has_std else {}))
    seconds = {"fit s": fitted - start, "predict s": perf_counter() - fitted}
    mean, std = predicted if has_std else (predicted, np.full(len(y_test), np.nan))
    within, order = np.abs(y_test - mean) < 1.96 * std, np.argsort(std)
    quarters = [f"{within[part].mean():.2f}" for part in np.array_split(order, 4)]
    row = {"estimator": type(model).__name__, **scores(y_test, mean, std)}
    return row | {"by quarter": " ".join(quarters) if has_std else None} | seconds


if __name__ == "__main__":
    main()
