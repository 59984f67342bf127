"""Defaults beside smaller and larger values, on rows that none of them was chosen on.

Random training rows of splits 0 and 2, up to 1,000 test rows, standardised inputs: NLPD, the
average of the splits. Some defaults are no parameters: those are replaced where they stand.
"""

from contextlib import nullcontext
from time import process_time
from unittest import mock

import numpy as np
from common import Report, load_split, parser, scores
from sklearn.preprocessing import StandardScaler

from skvbgp import DecoupledGPRegressor, VBDTCRegressor, VBKSRegressor
from skvbgp.decoupled import _learner as decoupled
from skvbgp.kernel_selection import _start
from skvbgp.kernels import RBF, Linear, RationalQuadratic

SPLITS = (0, 2)
#: Rows of a chunk of a stream.
CHUNK = 100


def load_rows(folder, name, split, n):
    """n random training rows, and the first test rows."""
    X, y, X_test, y_test = load_split(folder, name, split)
    rows = np.random.default_rng(split).permutation(len(X))[:n]
    scaler = StandardScaler().fit(X[rows])
    return scaler.transform(X[rows]), y[rows], scaler.transform(X_test[:1000]), y_test[:1000]


def try_prior_variance(value):
    return VBDTCRegressor(prior_variance=value, random_state=0), nullcontext()


def try_limits_of_alpha(limits):
    """Limits of RQ's alpha, where searches start within .1 and 10 if these allow it."""
    usual, (low, high) = _start._find_ranges, limits
    alpha = _start._Range(max(low, 0.1), min(high, 10.0), low, high)

    def ranges(leaf, scales):
        changed = {"alpha": alpha} if isinstance(leaf, RationalQuadratic) else {}
        return usual(leaf, scales) | changed

    rq = RationalQuadratic()
    model = VBKSRegressor(kernels=[rq, rq + RBF(), rq * Linear()], random_state=0)
    return model, mock.patch.object(_start, "_find_ranges", ranges)


def try_decoupled_prior(variance):
    model = DecoupledGPRegressor(random_state=0)
    return model, mock.patch.object(decoupled, "_PRIOR_VARIANCE", variance)


class Stream(DecoupledGPRegressor):
    """Learns from one chunk after the other."""

    def fit(self, X, y):
        for start in range(0, len(y), CHUNK):
            self.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
        return self


def try_visits(number):
    return Stream(random_state=0), mock.patch.object(decoupled, "_VISITS", number)


#: What is tried, with which values (the default in the middle), on how many rows.
CASES = {
    "prior_variance": (try_prior_variance, (1.0, 4.0, 16.0), (60, 200)),
    "alpha": (try_limits_of_alpha, ((0.5, 10.0), (0.1, 100.0), (0.01, 1e4)), (200,)),
    "decoupled_prior": (try_decoupled_prior, (0.125, 0.5, 2.0), (300,)),
    "decoupled_visits": (try_visits, (60, 120, 240), (600,)),
}


def measure(attempt, value, splits):
    """NLPD and processor seconds, averages of the splits."""
    results = []
    for X, y, X_test, y_test in splits:
        model, changed = attempt(value)
        start = process_time()
        with changed:
            mean, std = model.fit(X, y).predict(X_test, return_std=True)
        results.append([scores(y_test, mean, std)["NLPD"], process_time() - start])
    return np.mean(results, axis=0).tolist()


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    cli.add_argument("--datasets", nargs="+", default=["concrete", "airfoil", "protein"])
    args = cli.parse_args()
    report = Report(args.json)
    for case in args.cases:
        attempt, values, numbers = CASES[case]
        for n in numbers:
            for name in args.datasets:
                splits = [load_rows(args.data, name, split, n) for split in SPLITS]
                for value in values:
                    nlpd, seconds = measure(attempt, value, splits)
                    row = {"case": case, "value": str(value), "data": name, "rows": n}
                    report.add(**row, NLPD=nlpd, **{"CPU s": seconds})


if __name__ == "__main__":
    main()
