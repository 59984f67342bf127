"""A stream of a training set's rows beside a fit to all of them, for any regressor.

Both with the defaults. The rows of the stream come once, in random order, in chunks; inputs are
standardised by all training rows. RMSE and NLPD of the test rows for both, with the ratio of the
former and the difference of the latter. Processor seconds are of training, in this process.
`--parameters depth=1` is another value than the default.
"""

from time import process_time

from common import Report, literals, load_split, parser, scores, stream
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import skvbgp

ESTIMATORS = ["VBGP", "VBDTC", "VBFITC", "VBPITC", "VBPIC", "SVBSSGP", "DecoupledGP", "VBKS"]


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--datasets", nargs="+", default=["protein", "aimpeak"])
    cli.add_argument("--splits", nargs="+", type=int, default=[0])
    cli.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    cli.add_argument("--chunk", type=int, default=1000, help="rows of a call of partial_fit")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--parameters", nargs="+", default=[], metavar="NAME=VALUE")
    args = cli.parse_args()
    report, parameters = Report(args.json), literals(args.parameters)
    for name in args.estimators:
        model = getattr(skvbgp, f"{name}Regressor")(random_state=args.seed, **parameters)
        for data in args.datasets:
            for split in args.splits:
                rows = load_split(args.data, data, split)
                row = measure(model, *rows, n_rows=args.chunk, seed=args.seed)
                report.add(estimator=name, data=data, split=split, **row)


def measure(model, X, y, X_test, y_test, *, n_rows, seed):
    """A row of the table."""
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    fit = train_and_score(lambda: clone(model).fit(X, y), X_test, y_test)
    streamed = train_and_score(lambda: stream(clone(model), X, y, n_rows, seed), X_test, y_test)
    return {
        "RMSE of fit": fit["RMSE"],
        "RMSE of stream": streamed["RMSE"],
        "ratio": streamed["RMSE"] / fit["RMSE"],
        "NLPD of fit": fit["NLPD"],
        "NLPD of stream": streamed["NLPD"],
        "difference": streamed["NLPD"] - fit["NLPD"],
        "CPU s of fit": fit["CPU s"],
        "CPU s of stream": streamed["CPU s"],
    }


def train_and_score(train, X_test, y_test):
    start = process_time()
    model = train()
    seconds = process_time() - start
    mean, std = model.predict(X_test, return_std=True)
    return scores(y_test, mean, std) | {"CPU s": seconds}


if __name__ == "__main__":
    main()
