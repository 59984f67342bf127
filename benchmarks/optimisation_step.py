"""Time of an iteration of Bayesian optimisation with many observations, by what it is spent on.

Branin's function (2 inputs) and Hartmann's (6) at random places, and then as many more as there are
iterations, each by expected improvement of 500 candidates. Seconds are the processor's, the median
of the iterations; Thompson sampling is timed at the same candidates. "step s" is an iteration that
predicts, draws a function at the candidates, and learns what it has found.
"""

from time import process_time

import numpy as np
from common import Report, parser
from scipy.stats import norm

import skvbgp

#: Centres and inverse widths of Hartmann's four wells, and their depths.
CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
WIDTHS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
DEPTHS = np.array([1.0, 1.2, 3.0, 3.2])


def branin(X):
    a, b = 15.0 * X[:, 0] - 5.0, 15.0 * X[:, 1]
    bowl = b - 5.1 / (4.0 * np.pi**2) * a**2 + 5.0 / np.pi * a - 6.0
    return bowl**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0


def hartmann(X):
    return -np.exp(-np.sum(WIDTHS * (X[:, None] - CENTRES) ** 2, axis=2)) @ DEPTHS


FUNCTIONS = {"branin": (branin, 2, 0.397887), "hartmann": (hartmann, 6, -3.32237)}


def main():
    cli = parser(__doc__)
    cli.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    cli.add_argument("--rows", type=int, default=2_000, help="observations to start with")
    cli.add_argument("--estimator", default="VBGPRegressor", help="class of skvbgp")
    cli.add_argument("--neighbors", nargs="+", default=["auto", "128"], help="of VBGPRegressor")
    cli.add_argument("--inducing", nargs="+", type=int, default=[500, 250], help="of the others")
    cli.add_argument("--iterations", type=int, default=10)
    args = cli.parse_args()
    report = Report(args.json)
    settings = [{"n_inducing": m} for m in args.inducing]
    if args.estimator == "VBGPRegressor":
        settings = [{"n_neighbors": k if k == "auto" else int(k)} for k in args.neighbors]
    for name in args.functions:
        for options in settings:
            model = getattr(skvbgp, args.estimator)(**options, random_state=0)
            row = measure(model, *FUNCTIONS[name], args.rows, args.iterations)
            report.add(function=name, estimator=args.estimator, **options, **row)


def measure(model, function, d, least, n, n_iter):
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(n, d))
    y = function(X)
    fit, _ = clock(model.fit, X, y)
    seconds = []
    for i in range(n_iter):
        places = propose(rng, X[np.argmin(y)])
        predict, (mean, std) = clock(model.predict, places, return_std=True, include_noise=False)
        draw, _ = clock(lambda i=i, places=places: model.sample_function(1, i)(places))
        slopes, _ = clock(model.predict_gradient, places[:10])
        x = places[[np.argmax(improve(mean, std, y.min()))]]
        X, y = np.vstack([X, x]), np.append(y, function(x))
        update, _ = clock(model.partial_fit, x, y[-1:])
        seconds.append([predict, draw, slopes, update])
    parts = np.median(seconds, axis=0)
    names = ("predict s", "sample_function s", "10 gradients s", "partial_fit s")
    return {
        "kernels": len(getattr(model, "kernels_", [1])),
        "fit s": fit,
        **dict(zip(names, parts, strict=True)),
        "step s": np.median(np.sum(seconds, axis=1) - np.array(seconds)[:, 2]),
        "above least": y.min() - least,
    }


def propose(rng, best):
    near = best + 0.05 * rng.standard_normal((200, len(best)))
    return np.vstack([rng.uniform(size=(300, len(best))), np.clip(near, 0.0, 1.0)])


def improve(mean, std, best):
    z = (best - mean) / std
    return (best - mean) * norm.cdf(z) + std * norm.pdf(z)


def clock(function, *args, **options):
    start = process_time()
    result = function(*args, **options)
    return process_time() - start, result


if __name__ == "__main__":
    main()
