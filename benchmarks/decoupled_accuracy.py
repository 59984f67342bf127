"""DecoupledGP on real data: beside VBDTC, on a stream, per step, and as a classifier; on curves."""

from time import perf_counter

import numpy as np
from common import Report, load_split, parser, scores, smooth_data
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import DecoupledGPClassifier, DecoupledGPRegressor, VBDTCRegressor


def fit(args, report):
    """One fit with default settings, and VBDTC with as many inducing inputs."""
    X, y, X_test, y_test = load_split(args.data, args.dataset, args.split)
    model = DecoupledGPRegressor(parametrization=args.parametrization, random_state=args.seed)
    vbdtc = VBDTCRegressor(n_inducing=model.n_cov_basis, random_state=args.seed)
    for estimator in (vbdtc, model):
        start = perf_counter()
        estimator.fit(X, y)
        seconds = perf_counter() - start
        mean, std = estimator.predict(X_test, return_std=True)
        name = type(estimator).__name__
        report.add(what=f"fit {name}", rows=len(y), seconds=seconds, **scores(y_test, mean, std))


def stream(args, report):
    """The training rows in random order, in chunks of 500."""
    X, y, X_test, y_test = load_split(args.data, args.dataset, args.split)
    order = np.random.default_rng(args.seed).permutation(len(y))
    model = DecoupledGPRegressor(parametrization=args.parametrization, random_state=args.seed)
    start = perf_counter()
    for rows in np.array_split(order, len(y) // 500):
        model.partial_fit(X[rows], y[rows])
    seconds = perf_counter() - start
    mean, std = model.predict(X_test, return_std=True)
    report.add(what="stream", rows=len(y), seconds=seconds, **scores(y_test, mean, std))


def step(args, report):
    """Mean time of a step, with the bases at their sizes; the difference of two fits."""
    X, y = smooth_data(20_480, 8, np.random.default_rng(args.seed))
    for n_mean_basis in (1000, 2000, 4000):
        model = DecoupledGPRegressor(
            n_mean_basis, basis_growth=5000, tol=0.0, random_state=args.seed
        )
        seconds = []
        for passes in (1, 3):
            start = perf_counter()
            model.set_params(max_iter=passes).fit(X, y)
            seconds.append(perf_counter() - start)
        steps = 2 * len(y) / model.batch_size
        report.add(n_mean_basis=n_mean_basis, **{"ms per step": 1e3 * np.diff(seconds)[0] / steps})


def classify(args, report):
    """Ten folds of three sets of two classes, beside scikit-learn's Laplace approximation."""
    with np.load(args.data / "classification.npz") as file:
        for name in ("breast", "heart", "pima"):
            data, fold = file[f"{name}__data"], file[f"{name}__fold"]
            X, y = data[:, :-1], (data[:, -1] > 0).astype(int)
            models = {
                "GaussianProcessClassifier": GaussianProcessClassifier(
                    ConstantKernel() * RBF(2.0), random_state=0
                ),
                "DecoupledGPClassifier": DecoupledGPClassifier(
                    parametrization=args.parametrization, random_state=args.seed
                ),
            }
            for label, model in models.items():
                start, losses = perf_counter(), []
                for k in range(10):
                    test = fold == k
                    pipe = make_pipeline(StandardScaler(), model).fit(X[~test], y[~test])
                    losses.append(log_loss(y[test], pipe.predict_proba(X[test]), labels=[0, 1]))
                seconds = perf_counter() - start
                report.add(
                    data=name, model=label, seconds=seconds, **{"log-loss": float(np.mean(losses))}
                )


def chirp(n, rng):
    X = rng.uniform(size=(n, 1))
    return X, np.sin(2 * np.pi * 15 * X[:, 0] ** 2)


def step_function(n, rng):
    X = rng.uniform(-1.0, 1.0, (n, 1))
    return X, np.sign(X[:, 0])


def franke(n, rng):
    X = rng.uniform(size=(n, 2))
    u, v = 9.0 * X.T
    return X, (
        0.75 * np.exp(-((u - 2) ** 2 + (v - 2) ** 2) / 4)
        + 0.75 * np.exp(-((u + 1) ** 2) / 49 - (v + 1) / 10)
        + 0.5 * np.exp(-((u - 7) ** 2 + (v - 3) ** 2) / 4)
        - 0.2 * np.exp(-((u - 4) ** 2) - (v - 7) ** 2)
    )


def friedman(n, rng):
    return make_friedman1(n, random_state=rng.integers(2**31))


CURVES = [(chirp, 500), (chirp, 4_000), (chirp, 20_000), (step_function, 500), (franke, 1_000)]
CURVES += [(friedman, 800)]


def curves(args, report):
    """Curves and surfaces of unit spread, noise of std 0.15, beside scikit-learn's exact one."""
    for make, n in CURVES:
        rng = np.random.default_rng(args.seed)
        X, f = make(n + 1_000, rng)
        y = (f - np.mean(f)) / np.std(f) + 0.15 * rng.standard_normal(len(f))
        exact = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
        models = [
            (DecoupledGPRegressor(random_state=args.seed), n),
            (GaussianProcessRegressor(exact, normalize_y=True, random_state=args.seed), 1_000),
        ]
        for model, n_rows in models:
            pipe = make_pipeline(StandardScaler(), model).fit(
                X[: min(n, n_rows)], y[: min(n, n_rows)]
            )
            mean, std = pipe.predict(X[n:], return_std=True)
            name = type(model).__name__
            report.add(data=make.__name__, rows=n, model=name, **scores(y[n:], mean, std))


TASKS = {"fit": fit, "stream": stream, "step": step, "classify": classify, "curves": curves}


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("tasks", nargs="*", default=list(TASKS), help=f"some of {', '.join(TASKS)}")
    cli.add_argument("--dataset", default="kin40k")
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument(
        "--parametrization",
        choices=["orthogonal", "hybrid", "decoupled"],
        default="orthogonal",
    )
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()
    for task in args.tasks:
        TASKS[task](args, Report(args.json))


if __name__ == "__main__":
    main()
