"""VBGPClassifier beside other classifiers with their defaults: probabilities, and time.

Log-loss and its standard error, accuracy, expected calibration error (15 bins of the highest
probability, over all test rows), and processor seconds of a fit and of its predictions. The
differences are those of the log-loss from that of the first estimator, fold by fold, with their
standard errors. Ten folds of breast, heart and pima, five of scikit-learn's sets (`digits01` are
its digits 0 and 1), and one split of synthetic classes with curved borders. Name estimators and
sets to run it in parts. Estimators that would take hours get a random subset of the training rows:
the column says how many.

`--by-class` says instead how reliable the probabilities of each class are: its share of all test
rows, its mean probability, and the expected calibration error of this probability as one of
whether a row is of the class. "by chance" is what that error would be on average if the
probabilities were right (a hundred draws of the labels): in bins of few rows it is not 0.

`--peers` are interpreters of other environments: the first that has GPBoost adds its Vecchia
process to complete sets of two classes.

`--missing` removes entries at random, in training and in tests. Estimators that take NaN get them
as they are, and all estimators behind each of the `--imputers`.
"""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

import numpy as np
from common import Report, parser
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import get_tags

from skvbgp import DecoupledGPClassifier, EPDTCClassifier, VBGPClassifier

ESTIMATORS = {
    "VBGP": lambda: VBGPClassifier(random_state=0),
    "EPDTC": lambda: EPDTCClassifier(random_state=0),
    "Decoupled": lambda: DecoupledGPClassifier(random_state=0),
    "logistic": lambda: LogisticRegression(max_iter=1000),
    "SVC": lambda: CalibratedClassifierCV(SVC(random_state=0), ensemble=False),
    "trees": lambda: HistGradientBoostingClassifier(random_state=0),
    "calibrated trees": lambda: CalibratedClassifierCV(
        HistGradientBoostingClassifier(random_state=0)
    ),
    "Laplace": lambda: GaussianProcessClassifier(ConstantKernel() * RBF(2.0), random_state=0),
}
#: Of estimators whose time is quadratic or cubic in the rows.
MOST_ROWS = {"EPDTC": 10_000, "SVC": 10_000, "Laplace": 1_000, "GPBoost": 10_000}
IMPUTERS = {
    "mean": SimpleImputer,
    "nearest": KNNImputer,
    "iterative": lambda: IterativeImputer(random_state=0),
}
FOLDED = ["breast", "heart", "pima"]
SETS = [*FOLDED, "iris", "wine", "breast_cancer", "digits01", "digits", "curved2", "curved7"]
N_TEST = 10_000
N_BINS = 15
N_DRAWS = 100


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    cli.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=[*ESTIMATORS])
    cli.add_argument("--rows", type=int, default=100_000, help="training rows of curved2, curved7")
    cli.add_argument("--folds", type=int, default=10, help="most folds that are measured")
    cli.add_argument("--missing", type=float, default=0.0, help="share of entries to remove")
    cli.add_argument("--imputers", nargs="+", choices=IMPUTERS, default=["mean", "iterative"])
    cli.add_argument("--peers", nargs="+", default=[], metavar="PYTHON")
    cli.add_argument("--by-class", action="store_true", help="a row for each class")
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.sets:
        splits, first = make_splits(name, args), None
        for row, results in measure_all(name, splits, args):
            if args.by_class:
                for scores in score_classes(results, splits):
                    report.add(**row, **scores)
                continue
            scores, losses = score(results, splits)
            first = losses if first is None else first
            difference, its_error = average(losses - first)
            report.add(**row, **scores, **{"difference": difference, "its s.e.": its_error})


def measure_all(name, splits, args):
    """Yield what is measured, and its result of each split."""
    for estimator in args.estimators:
        for imputer in choose_imputers(ESTIMATORS[estimator](), args):
            row = {"data": name, "estimator": estimator}
            if args.missing:
                row |= {"missing": args.missing, "imputer": imputer}
            yield row, [predict(estimator, imputer, *split[:3]) for split in splits]
    if not args.missing and splits[0][1].max() == 1:
        results = predict_by_peer(splits, args.peers)
        if results:
            yield {"data": name, "estimator": "GPBoost"}, results


def choose_imputers(model, args):
    """Names of imputers, None for an estimator that needs none."""
    if not args.missing:
        return [None]
    return [None, *args.imputers] if get_tags(model).input_tags.allow_nan else args.imputers


def make_splits(name, args):
    """Pairs of X, y that train and X, y that test."""
    if name.startswith("curved"):
        X, y = make_curved(args.rows + N_TEST, int(name[-1]))
        X = remove_entries(X, args.missing)
        return [(X[:-N_TEST], y[:-N_TEST], X[-N_TEST:], y[-N_TEST:])]
    if name in FOLDED:
        with np.load(args.data / "classification.npz") as file:
            table, fold = file[f"{name}__data"], file[f"{name}__fold"]
        X, y = table[:, :-1], (table[:, -1] > 0).astype(int)
        tests = [fold == k for k in range(10)]
    else:
        source, has_two = name.removesuffix("01"), name.endswith("01")
        X, y = getattr(datasets, f"load_{source}")(return_X_y=True)
        if has_two:
            X, y = X[y < 2], y[y < 2]
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
        tests = [np.isin(np.arange(len(y)), index) for _, index in folds]
    X = remove_entries(X, args.missing)
    return [(X[~test], y[~test], X[test], y[test]) for test in tests[: args.folds]]


def remove_entries(X, share):
    """X with NaN in random places."""
    return np.where(np.random.default_rng(0).random(X.shape) < share, np.nan, X)


def make_curved(n, n_classes):
    """Eight inputs, of which six matter, and sectors of two functions of these with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (n, 8))
    a, b, c, d, e, f = X.T[:6]
    noise = 0.15 * rng.standard_normal((2, n))
    first = np.sin(1.5 * a) + 0.5 * b * c + 0.4 * d**2 - 0.5 + noise[0]
    second = np.cos(1.2 * b + e) + 0.5 * a * d - 0.3 * f + noise[1]
    angle = np.arctan2(second, first) / (2.0 * np.pi) + 0.5
    return X, np.minimum((n_classes * angle).astype(int), n_classes - 1)


class Result(NamedTuple):
    """Of one split."""

    p: np.ndarray  # (n, K), probabilities of the classes 0 to K - 1
    seconds: list[float]  # of fit and of prediction
    n_rows: int  # that trained


def predict(estimator, imputer, X, y, X_test):
    X, y = choose_rows(estimator, X, y)
    steps = [] if imputer is None else [IMPUTERS[imputer]()]
    start = process_time()
    model = make_pipeline(StandardScaler(), *steps, ESTIMATORS[estimator]()).fit(X, y)
    fitted = process_time()
    p = model.predict_proba(X_test)
    return Result(p, [fitted - start, process_time() - fitted], len(y))


def choose_rows(estimator, X, y):
    """All training rows, or as many at random as the estimator gets."""
    rows = np.random.default_rng(0).permutation(len(y))[: MOST_ROWS.get(estimator)]
    rows.sort()
    return X[rows], y[rows]


def predict_by_peer(splits, peers):
    """Results of GPBoost by the first interpreter that has it, None without one."""
    arrays, n_rows = {}, []
    for k, (X, y, X_test, _) in enumerate(splits):
        X, y = choose_rows("GPBoost", X, y)
        scaler = StandardScaler().fit(X)
        arrays[f"X{k}"], arrays[f"X_test{k}"] = scaler.transform(X), scaler.transform(X_test)
        arrays[f"y{k}"] = y
        n_rows.append(len(y))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "splits.npz"
        np.savez(file, **arrays)
        command = ["-W", "ignore", str(Path(__file__).with_name("run_bernoulli.py")), str(file)]
        for python in peers:
            done = subprocess.run([python, *command], stdout=subprocess.PIPE, text=True)
            if done.returncode == 0:
                lines = filter(lambda line: line.startswith("{"), done.stdout.splitlines())
                found = [json.loads(line) for line in lines]
                p = [np.column_stack([1.0 - np.array(one["p"]), one["p"]]) for one in found]
                return [
                    Result(*parts)
                    for parts in zip(p, (one["seconds"] for one in found), n_rows, strict=True)
                ]
    return None


def score(results, splits):
    """Scores, and the log-loss of each split."""
    tests = [y_test for *_, y_test in splits]
    losses = np.array([measure_loss(result.p, y) for result, y in zip(results, tests, strict=True)])
    right = np.concatenate([r.p.argmax(axis=1) == y for r, y in zip(results, tests, strict=True)])
    confidence = np.concatenate([result.p.max(axis=1) for result in results])
    fit, prediction = np.mean([result.seconds for result in results], axis=0).tolist()
    loss, error = average(losses)
    scores = {
        "rows": results[-1].n_rows,
        "log-loss": loss,
        "s.e.": error,
        "accuracy": float(np.mean(right)),
        "ECE": measure_calibration_error(right, confidence),
        "fit s": fit,
        "predict s": prediction,
    }
    return scores, losses


def score_classes(results, splits):
    """Yield scores of each class, over the test rows of all splits."""
    p = np.concatenate([result.p for result in results])
    y = np.concatenate([y_test for *_, y_test in splits])
    rng = np.random.default_rng(0)
    for k, probability in enumerate(p.T):
        draws = rng.random((N_DRAWS, len(p))) < probability
        errors = [measure_calibration_error(draw, probability) for draw in draws]
        yield {
            "class": k,
            "share": float(np.mean(y == k)),
            "mean probability": float(np.mean(probability)),
            "ECE": measure_calibration_error(y == k, probability),
            "by chance": float(np.mean(errors)),
        }


def measure_loss(p, y):
    return np.mean(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-15)))


def average(values):
    """Mean over folds, and its standard error."""
    return float(np.mean(values)), float(np.std(values) / np.sqrt(max(len(values) - 1, 1)))


def measure_calibration_error(right, confidence):
    """Difference of the share of right ones and of confidence in bins of it, averaged over rows."""
    bins = np.minimum((N_BINS * confidence).astype(int), N_BINS - 1)
    excess = np.bincount(bins, right - confidence, N_BINS)
    return float(np.sum(np.abs(excess)) / len(right))


if __name__ == "__main__":
    main()
