"""EPDTCClassifier against scikit-learn's classifier: log-loss, error and time, ten folds."""

import warnings
from time import perf_counter

import numpy as np
from common import Report, parser
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import EPDTCClassifier


def laplace():
    return GaussianProcessClassifier(ConstantKernel() * RBF(2.0), random_state=0)


MODELS = {
    "complete": {
        "EP-DTC": lambda: EPDTCClassifier(random_state=0),
        "EP-FITC": lambda: EPDTCClassifier(approximation="fitc", random_state=0),
        "Laplace": lambda: make_pipeline(StandardScaler(), laplace()),
    },
    "missing": {
        "EP-DTC": lambda: EPDTCClassifier(random_state=0),
        "EP-FITC": lambda: EPDTCClassifier(approximation="fitc", random_state=0),
        "mean + Laplace": lambda: make_pipeline(StandardScaler(), SimpleImputer(), laplace()),
        "iterative + Laplace": lambda: make_pipeline(
            StandardScaler(), IterativeImputer(random_state=0), laplace()
        ),
    },
}


def load(folder, name, kind, seed):
    """Inputs, labels 0 and 1, and the fold of each row."""
    with np.load(folder / "classification.npz") as file:
        table, fold = file[f"{name}__data"], file[f"{name}__fold"]
    X, y = table[:, :-1].copy(), (table[:, -1] > 0).astype(int)
    if kind == "missing":
        X[np.random.default_rng(seed).random(X.shape) < 0.3] = np.nan
    return X, y, fold


def measure(make, X, y, fold):
    losses, errors, start = [], [], perf_counter()
    for k in range(10):
        test = fold == k
        p = make().fit(X[~test], y[~test]).predict_proba(X[test])
        losses.append(log_loss(y[test], p, labels=[0, 1]))
        errors.append(np.mean(p.argmax(axis=1) != y[test]))
    return {
        "log-loss": float(np.mean(losses)),
        "error": float(np.mean(errors)),
        "seconds": perf_counter() - start,
    }


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--dataset", nargs="*", default=["breast", "heart", "pima"])
    cli.add_argument("--kind", nargs="*", choices=MODELS, default=list(MODELS))
    cli.add_argument("--model", nargs="*", help="these models instead of all")
    cli.add_argument("--seed", type=int, default=0, help="of the missing entries")
    args = cli.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")  # the peers' convergence
    report = Report(args.json)
    for name in args.dataset:
        for kind in args.kind:
            X, y, fold = load(args.data, name, kind, args.seed)
            for model, make in MODELS[kind].items():
                if args.model is None or model in args.model:
                    scores = measure(make, X, y, fold)
                    report.add(data=name, inputs=kind, model=model, **scores)


if __name__ == "__main__":
    main()
