"""EPDTCClassifier against scikit-learn's classifiers: log-loss, error and time, ten folds.

Besides the data of a file, ``--dataset`` takes two sets of scikit-learn, breast_cancer and digits01
(zeros and ones), and three that are drawn: columns of few factors, or with a factor each.
"""

import warnings
from time import perf_counter

import numpy as np
from common import Report, parser
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
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
        "mean + logistic": lambda: make_pipeline(
            StandardScaler(), SimpleImputer(), LogisticRegression(max_iter=1_000)
        ),
    },
}


def draw(n, d, n_factors, seed):
    """Columns that are linear in factors, with noise, and classes that are not."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, n_factors))
    X = z @ rng.standard_normal((n_factors, d))
    X += 0.5 * np.sqrt(n_factors) * rng.standard_normal((n, d))
    score = 2.0 * z[:, 0] + z[:, 1] * z[:, 2] + 0.5 * rng.standard_normal(n)
    return X, (score > 0.0).astype(int)


#: Sets of 200 to 600 rows with 30 to 64 columns, that no file is needed for.
WIDE = {
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits01": lambda: load_digits(n_class=2, return_X_y=True),
    "drawn-40": lambda: draw(250, 40, n_factors=4, seed=1),
    "drawn-60": lambda: draw(300, 60, n_factors=8, seed=2),
    "drawn-30": lambda: draw(200, 30, n_factors=30, seed=3),
}


def load(folder, name, kind, seed):
    """Inputs, labels 0 and 1, and the fold of each row."""
    if name in WIDE:
        X, y = WIDE[name]()
        fold = np.empty(len(y), dtype=int)
        folds = StratifiedKFold(10, shuffle=True, random_state=0)
        for k, (_, test) in enumerate(folds.split(X, y)):
            fold[test] = k
    else:
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
