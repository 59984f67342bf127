"""Accuracy, calibration and time of the estimators on real data."""

from time import perf_counter
from typing import NamedTuple

from common import Report, load_split, parser, scores
from sklearn.base import clone

import skvbgp
from skvbgp.kernels import Constant, Matern, RationalQuadratic


class Case(NamedTuple):
    data: str
    estimator: str
    noise_kernel: str | None = None


CASES = [
    Case("kin40k", "VBDTC"),
    Case("protein", "VBDTC"),
    Case("flights", "VBDTC"),
    Case("aimpeak", "VBDTC"),
    Case("aimpeak", "VBPIC", "se"),
    Case("aimpeak", "VBPIC", "time_space"),
]

#: Noise kernels over the raw inputs; "se" is the estimators' default. Those of aimpeak are
#: a time slot of five minutes and five coordinates of the road.
NOISE_KERNELS = {
    "se": None,
    "time_space": Constant(0.5)
    * RationalQuadratic([15.0, 60.0, 60.0, 60.0, 60.0, 60.0])
    * Matern([450.0, 2.0, 2.0, 2.0, 2.0, 2.0], nu=0.5),
}


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument("--dataset", help="this data set instead of the default cases")
    cli.add_argument("--estimator", choices=["VBDTC", "VBFITC", "VBPITC", "VBPIC"], default="VBDTC")
    cli.add_argument(
        "--noise-kernel", choices=NOISE_KERNELS, default="se", help="not used by VBDTC"
    )
    cli.add_argument("--n-inducing", type=int, default=500)
    cli.add_argument("--max-iter", type=int)
    cli.add_argument("--batch-size", type=int, default=2048)
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()
    cases = CASES
    if args.dataset is not None:
        noise_kernel = None if args.estimator == "VBDTC" else args.noise_kernel
        cases = [Case(args.dataset, args.estimator, noise_kernel)]
    report = Report(args.json)
    for case in cases:
        measure(case, args, report)


def measure(case, args, report):
    X, y, X_test, y_test = load_split(args.data, case.data, args.split)
    model = getattr(skvbgp, f"{case.estimator}Regressor")(
        n_inducing=args.n_inducing,
        max_iter=args.max_iter,
        batch_size=args.batch_size,
        random_state=args.seed,
    )
    if case.noise_kernel is not None:
        model.set_params(noise_kernel=NOISE_KERNELS[case.noise_kernel])
    # what is imported and compiled on first use is not part of the time
    clone(model).set_params(n_inducing=10, max_iter=1, solver="stochastic").fit(X[:200], y[:200])

    start = perf_counter()
    model.fit(X, y)
    fit_seconds = perf_counter() - start
    start = perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    predict_seconds = perf_counter() - start
    report.add(
        **case._asdict(),
        n_inducing=args.n_inducing,
        passes=model.n_iter_,
        **{"fit s": fit_seconds},
        **scores(y_test, mean, std),
        **{"predict s": predict_seconds},
    )


if __name__ == "__main__":
    main()
