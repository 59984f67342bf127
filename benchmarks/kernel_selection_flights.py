"""Kernels of the set K12 of the paper of VBKS on many rows, by mini-batches."""

import time

from common import Report, load_split, parser, scores

from skvbgp import VBKSRegressor, kernel_grammar

#: Table 1 of the paper, in the names of `kernel_grammar`.
K12 = [
    "RQ + LIN",
    "LIN + RQ * LIN",
    "PER + RQ * LIN",
    "SE + RQ + PER",
    "RQ + LIN + PER",
    "SE + PER + PER",
    "SE + SE * PER",
    "SE + RQ * PER",
    "SE + LIN * PER",
    "SE * LIN * PER",
    "RQ * LIN * PER",
    "LIN * (RQ + PER)",
]


def kernel_set_12():
    """(name, kernel) pairs."""
    grammar = dict(kernel_grammar())
    return [(name, grammar[name]) for name in K12]


def main():
    arguments = parser(__doc__, data=True)
    arguments.add_argument("--dataset", default="flights")
    arguments.add_argument("--n-inducing", type=int, default=500)
    arguments.add_argument("--n-jobs", type=int, default=2)
    options = arguments.parse_args()
    X, y, X_test, y_test = load_split(options.data, options.dataset, 0)
    start = time.perf_counter()
    model = VBKSRegressor(
        kernel_set_12(),
        n_inducing=options.n_inducing,
        n_trained=None,  # all of them to the end, as in the paper
        random_state=0,
        n_jobs=options.n_jobs,
    ).fit(X, y)
    seconds = time.perf_counter() - start
    report = Report(options.json)
    average = scores(y_test, *model.predict(X_test, return_std=True))
    report.add(kernel="average", weight=1.0, seconds=seconds, **average)
    for single, weight in zip(model.estimators_, model.estimator_weights_, strict=True):
        row = scores(y_test, *single.predict(X_test, return_std=True))
        report.add(kernel=single.name, weight=float(weight), seconds=None, **row)


if __name__ == "__main__":
    main()
