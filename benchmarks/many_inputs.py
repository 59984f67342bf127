"""VBDTC and VBPIC on sets of 15 to 30 inputs, some irrelevant, some nearly collinear.

VBPIC contains VBDTC: neither its bound should end below, nor its error far above.
"""

from time import perf_counter

import numpy as np
from common import Report, parser, scores

import skvbgp


def mix(z, n_inputs, noise, rng):
    """Linear combinations of few columns (n, k), with a little noise of their own."""
    weights = rng.standard_normal((z.shape[1], n_inputs)) / np.sqrt(z.shape[1])
    return z @ weights + noise * rng.standard_normal((len(z), n_inputs))


def wavy(z):
    return np.sin(2.0 * z[:, 0]) + z[:, 1] * z[:, 2]


def irrelevant(n, rng):
    X = rng.standard_normal((n, 15))
    return X, wavy(X) + 0.1 * rng.standard_normal(n)


def collinear(n, rng):
    z = rng.standard_normal((n, 4))
    return mix(z, 20, 0.01, rng), wavy(z) + 0.3 * z[:, 3] ** 2 + 0.05 * rng.standard_normal(n)


def copies(n, rng):
    X = rng.standard_normal((n, 5))
    twins = X + 0.05 * rng.standard_normal((n, 5))
    y = wavy(X) + np.cos(X[:, 3]) + 0.5 * X[:, 4] + 0.1 * rng.standard_normal(n)
    return np.hstack([X, twins, rng.standard_normal((n, 15))]), y


def noiseless(n, rng):
    z = rng.standard_normal((n, 3))
    X = np.hstack([mix(z, 18, 0.003, rng), rng.standard_normal((n, 12))])
    return X, wavy(z) + 0.005 * rng.standard_normal(n)


SETS = {
    "3 of 15 matter": irrelevant,
    "20 of 4": collinear,
    "5, copies, 15 others": copies,
    "18 of 3, 12 others": noiseless,
}


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=int, default=5_300)
    cli.add_argument("--seed", type=int, default=0, help="of the first set; one more for each")
    cli.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    cli.add_argument("--estimators", nargs="+", default=["VBDTCRegressor", "VBPICRegressor"])
    args = cli.parse_args()
    report = Report(args.json)
    for seed, (name, make) in enumerate(SETS.items(), args.seed):
        if name not in args.sets:
            continue
        X, y = make(args.rows + 1_000, np.random.default_rng(seed))
        X, y, T, t = X[:-1_000], y[:-1_000], X[-1_000:], y[-1_000:]
        for estimator in args.estimators:
            start = perf_counter()
            model = getattr(skvbgp, estimator)(random_state=0).fit(X, y)
            seconds = perf_counter() - start
            found = scores(t, *model.predict(T, return_std=True))
            bound = getattr(model, "lower_bound_", None)
            report.add(data=name, model=estimator, **found, bound=bound, **{"fit s": seconds})


if __name__ == "__main__":
    main()
