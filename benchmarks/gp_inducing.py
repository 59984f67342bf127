"""VBGPRegressor with and without a global part, and the global process of VBDTCRegressor.

Synthetic sets of 5,000 rows or more, whose number is the seed, and subsets of as many rows of real
ones. NLPD and RMSE are those of the standardised target on 1,000 other rows; seconds are the
processor's.
"""

from pathlib import Path
from time import process_time

import numpy as np
from common import Report, load_split, parser, scores
from sklearn.preprocessing import StandardScaler

from skvbgp import VBDTCRegressor, VBGPRegressor

N_TEST = 1_000
FORMS = {
    "near rows": lambda seed: VBGPRegressor(n_inducing=None, random_state=seed),
    "both": lambda seed: VBGPRegressor(n_inducing=500, random_state=seed),
    "auto": lambda seed: VBGPRegressor(random_state=seed),
    "VBDTC": lambda seed: VBDTCRegressor(300, random_state=seed),
}


def main():
    cli = parser(__doc__)
    cli.add_argument("--data", type=Path, metavar="DIR", help="folder of NAME.npz files")
    cli.add_argument("--datasets", nargs="+", default=[], help="real ones, which need --data")
    cli.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS), help="synthetic ones")
    cli.add_argument("--splits", nargs="+", type=int, default=[2], help="seeds of synthetic sets")
    cli.add_argument("--rows", type=int, default=5_000, help="to train with")
    cli.add_argument("--forms", nargs="+", choices=FORMS, default=["near rows", "auto"])
    args = cli.parse_args()
    report = Report(args.json)
    for split in args.splits:
        for name in (*args.sets, *args.datasets):
            rng = np.random.default_rng([split, sum(map(ord, name))])
            if name in SETS:
                data = draw(name, args.rows, rng)
            else:
                data = subset(args.data, name, split, args.rows, rng)
            for form in args.forms:
                row = measure(FORMS[form](split), *data)
                report.add(data=name, split=split, form=form, **row)


def draw(name, n, rng):
    X, f, noise = SETS[name](rng, n + N_TEST)
    y = f + noise * rng.standard_normal(len(f))
    return X[:n], y[:n], X[n:], y[n:]


def subset(folder, name, split, n, rng):
    X, y, X_test, y_test = load_split(folder, name, split)
    train, test = rng.permutation(len(y))[:n], rng.permutation(len(y_test))[:N_TEST]
    return X[train], y[train], X_test[test], y_test[test]


def measure(model, X, y, X_test, y_test):
    inputs, mean, std = StandardScaler().fit(X), y.mean(), y.std()
    start = process_time()
    model.fit(inputs.transform(X), (y - mean) / std)
    fitted = process_time()
    prediction = model.predict(inputs.transform(X_test), return_std=True)
    seconds = {"fit s": fitted - start, "predict s": process_time() - fitted}
    n_inducing = getattr(model, "n_inducing_", None)
    return scores((y_test - mean) / std, *prediction) | {"inducing": n_inducing} | seconds


# Inputs (n, d), the function there, and the standard deviation of the noise.


def few(rng, n):
    """Three inputs of twenty."""
    X = rng.standard_normal((n, 20))
    return X, np.sin(2.0 * X[:, 0]) + 0.7 * X[:, 1] * X[:, 2], 0.2


def additive(rng, n):
    """Waves along sixteen inputs."""
    X = rng.uniform(-2.0, 2.0, (n, 16))
    return X, np.sin(1.5 * X + rng.uniform(0.0, 6.0, 16)).sum(axis=1) / np.sqrt(8.0), 0.15


def collinear(rng, n):
    """Four of eight inputs, each of which is measured three times."""
    Z = rng.standard_normal((n, 8))
    X = np.hstack([Z + 0.05 * rng.standard_normal((n, 8)) for _ in range(3)])
    return X, np.sin(1.5 * Z[:, 0]) * Z[:, 1] + np.cos(Z[:, 2]) + 0.5 * Z[:, 3], 0.2


def trend(rng, n):
    """A line in thirty inputs, and a wave in two of them."""
    X, b = rng.standard_normal((n, 30)), rng.standard_normal(30)
    wave = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])
    return X, X @ b / np.linalg.norm(b) + 0.4 * wave, 0.15


def two_scales(rng, n):
    """Smooth in ten inputs, and rough in two of them."""
    X, b = rng.uniform(-1.0, 1.0, (n, 10)), rng.standard_normal(10)
    W, a = 12.0 * rng.standard_normal((2, 40)), rng.standard_normal(40)
    rough = np.cos(X[:, :2] @ W + rng.uniform(0.0, 2.0 * np.pi, 40)) @ a / np.sqrt(20.0)
    return X, np.tanh(X @ b) + 0.5 * X[:, 2] * X[:, 3] + 0.35 * rough, 0.1


def quadratic(rng, n):
    """A quadratic form of fifteen inputs."""
    X = rng.standard_normal((n, 15))
    return X, np.sum(X @ rng.standard_normal((15, 15)) * X, axis=1) / 15.0, 0.4


def friedman(rng, n):
    """Friedman's function of five of ten inputs."""
    X = rng.uniform(size=(n, 10))
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return X, f + 10.0 * X[:, 3] + 5.0 * X[:, 4], 1.0


def hundred(rng, n):
    """Friedman's function of five of a hundred inputs."""
    X, f, noise = friedman(rng, n)
    return np.hstack([X, rng.uniform(size=(n, 90))]), f, noise


def factors(rng, n):
    """Ninety inputs that have twenty causes, three of which move the target a little."""
    Z = rng.standard_normal((n, 20))
    X = Z @ rng.standard_normal((20, 90)) + rng.standard_normal((n, 90))
    return X, np.tanh(Z[:, 0] + 0.5 * Z[:, 1] * Z[:, 2]) + 0.3 * Z[:, 3], 1.4


def difference(rng, n):
    """The difference of two of six inputs, which differ by a hundredth, and a wave."""
    X, change = rng.standard_normal((n, 6)), rng.standard_normal(n)
    X[:, 1] = X[:, 0] + 0.01 * change
    return X, 0.5 * change + 3.0 * np.sin(2.0 * X[:, 2]), 0.1


EVERY = (
    few,
    additive,
    collinear,
    trend,
    two_scales,
    quadratic,
    friedman,
    hundred,
    factors,
    difference,
)
SETS = {f.__name__: f for f in EVERY}


if __name__ == "__main__":
    main()
