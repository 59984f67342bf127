"""Time of EPDTCClassifier: fits as n grows, and the schedules of EP at the same parameters."""

from time import perf_counter

import numpy as np
from common import Report, parser
from scipy.special import ndtr
from sklearn.metrics import log_loss

from skvbgp import EPDTCClassifier


def two_classes(n, rng):
    """Rows of four inputs, labels, and their true probabilities."""
    X = rng.uniform(-1.0, 1.0, (n, 4))
    p = ndtr(2.0 * np.sin(4.0 * X[:, 0]) + 3.0 * X[:, 1] * X[:, 2])
    return X, (rng.uniform(size=n) < p).astype(int), p


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=int, nargs="*", default=[2_500, 5_000, 10_000, 20_000])
    cli.add_argument("--n-inducing", type=int, default=200)
    cli.add_argument("--schedules", action="store_true", help="EP alone, instead of fits")
    args = cli.parse_args()
    report = Report(args.json)
    for n in args.rows:
        rng = np.random.default_rng(0)
        X, y, _ = two_classes(n, rng)
        if args.schedules:
            schedules(report, X, y, args.n_inducing)
        else:
            fits(report, X, y, two_classes(5_000, rng), args.n_inducing)


def fits(report, X, y, test, n_inducing):
    X_test, y_test, p = test
    model = EPDTCClassifier(n_inducing, random_state=0)
    start = perf_counter()
    model.fit(X, y)
    fit_seconds = perf_counter() - start
    start = perf_counter()
    q = model.predict_proba(X_test)
    report.add(
        rows=len(X),
        inducing=n_inducing,
        **{"fit s": fit_seconds, "iterations": model.n_iter_},
        **{"predict s": perf_counter() - start},
        **{"log-loss": log_loss(y_test, q), "log-loss of the truth": log_loss(y_test, p)},
    )


def schedules(report, X, y, n_inducing):
    """At learned hyperparameters and, where the sites are stiff, at a larger variance of f."""
    learned = EPDTCClassifier(n_inducing, random_state=0).fit(X, y)
    constant, rbf = learned.kernel_.kernels
    for factor in (1.0, 100.0):
        kernel = factor * constant.value * rbf
        for schedule, damping in (
            ("parallel", 0.0),
            ("parallel", 0.2),
            ("parallel", 0.5),
            ("sequential", 0.0),
        ):
            model = EPDTCClassifier(
                kernel=kernel,
                inducing_inputs=learned.inducing_inputs_,
                learn_hyperparameters=False,
                schedule=schedule,
                damping=damping,
            )
            start = perf_counter()
            model.fit(X, y)
            report.add(
                rows=len(X),
                **{"variance of f": f"x {factor:g}"},
                schedule=schedule,
                damping=damping,
                seconds=perf_counter() - start,
                evidence=model.log_marginal_likelihood_value_,
            )


if __name__ == "__main__":
    main()
