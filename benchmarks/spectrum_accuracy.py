"""SVBSSGP on real data: time, accuracy and calibration by gamma, prediction of many rows.

With --chunk the training rows come as a stream, in random order.
"""

from time import perf_counter

import numpy as np
from common import Report, load_split, parser, scores, stream

from skvbgp import SVBSSGPRegressor

#: Rows of the timed prediction: test rows, repeated.
PREDICTED_ROWS = 100_000


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=["aimpeak", "protein"])
    cli.add_argument("--gamma", type=float, nargs="+", default=[0.0, 1.0])
    cli.add_argument("--objective", choices=["blocks", "bound"], default="blocks")
    cli.add_argument("--posterior", choices=["joint", "factorised", "point"], default="joint")
    cli.add_argument("--n-neighbors", type=int, help="predict from near rows instead of blocks")
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--chunk", type=int, help="rows of a chunk of a stream")
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.datasets:
        X, y, X_test, y_test = load_split(args.data, name, args.split)
        model = SVBSSGPRegressor(
            objective=args.objective,
            posterior=args.posterior,
            n_neighbors=args.n_neighbors,
            random_state=args.seed,
        )
        start = perf_counter()
        if args.chunk:
            stream(model, X, y, args.chunk, seed=args.split)
        else:
            model.fit(X, y)
        fit_seconds = perf_counter() - start
        for gamma in args.gamma:
            model.set_params(gamma=gamma)
            mean, std = model.predict(X_test, return_std=True)
            many = np.resize(X_test, (PREDICTED_ROWS, X.shape[1]))
            start = perf_counter()
            model.predict(many, return_std=True)
            report.add(
                data=name,
                gamma=gamma,
                **{"fit s": fit_seconds},
                **scores(y_test, mean, std),
                bound=model.lower_bound_,
                **{"1e5 rows s": perf_counter() - start},
            )


if __name__ == "__main__":
    main()
