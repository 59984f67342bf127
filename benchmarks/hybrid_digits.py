"""HybridGPLVM on 500 digits 0 to 4 (64 columns), with and without labels: time and silhouette."""

from time import perf_counter

import numpy as np
from common import Report, parser
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_score

from skvbgp import HybridGPLVM


def main():
    args = parser(__doc__).parse_args()
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(y < 5)
    train, test = rows[:500], rows[500:]
    report = Report(args.json)
    for name, labels in [("with", y[train]), ("without", None)]:
        start = perf_counter()
        model = HybridGPLVM(random_state=0).fit(X[train], labels)
        seconds = perf_counter() - start
        report.add(
            labels=name,
            seconds=seconds,
            iterations=model.n_iter_,
            **{
                "silhouette": silhouette_score(model.transform(X[train]), y[train]),
                "silhouette of new rows": silhouette_score(model.transform(X[test]), y[test]),
                "accuracy": None if labels is None else model.score(X[test], y[test]),
            },
        )


if __name__ == "__main__":
    main()
