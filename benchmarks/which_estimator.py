"""Where another regressor than VBGPRegressor is the better choice, and where it is not.

The figures of doc/which_estimator.rst: small data that are made here, or come with scikit-learn;
defaults throughout. RMSE, NLPD and coverage are of new observations, and of the function itself
where observations have outliers; NLPD is that of a normal distribution with the mean and standard
deviation.
"""

from time import process_time

import numpy as np
from common import Report, parser, scores
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skvbgp import (
    DecoupledGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBGPRegressor,
    VBKSRegressor,
)

N_NEW = 1_000


def forecast(seed):
    """Nine years of months to learn from, three to predict; the season grows with the trend."""
    rng = np.random.default_rng(seed)
    year = np.arange(144) / 12.0
    season = np.sin(2.0 * np.pi * year) + 0.4 * np.cos(4.0 * np.pi * year)
    y = (4.0 + 0.8 * year) * (3.0 + season) + 2.0 * rng.standard_normal(144)
    y = (y - y[:108].mean()) / y[:108].std()
    X = year[:, None]
    return X[:108], y[:108], X[108:], y[108:]


def draw_inputs(n, seed):
    rng = np.random.default_rng(seed)
    return rng, rng.uniform(0.0, 10.0, (n, 1)), np.linspace(0.0, 10.0, N_NEW)[:, None]


def outliers(seed):
    """A sine with noise 0.1, every tenth row with an error of standard deviation 3."""
    rng, X, X_new = draw_inputs(250, seed)
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(250)
    y[::10] += 3.0 * rng.standard_normal(25)
    return X, y, X_new, np.sin(X_new[:, 0])


def counts(seed):
    """Rates from 0.6 to 4.5."""
    rng, X, X_new = draw_inputs(250, seed)
    y, y_new = (rng.poisson(np.exp(0.5 + np.sin(Z[:, 0]))).astype(float) for Z in (X, X_new))
    return X, y, X_new, y_new


def diabetes(seed):
    X, y = load_diabetes(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X, y, random_state=seed)
    return X, y, X_new, y_new


def two_noises(seed):
    """A sine, with noise 0.05 in one half and 0.5 in the other."""
    rng, X, X_new = draw_inputs(500, seed)

    def observe(X):
        std = np.where(X[:, 0] < 5.0, 0.05, 0.5)
        return np.sin(X[:, 0]) + std * rng.standard_normal(len(X))

    return X, observe(X), X_new, observe(X_new)


CASES = {
    forecast: [VBKSRegressor()],
    outliers: [DecoupledGPRegressor(likelihood="student_t")],
    counts: [DecoupledGPRegressor(likelihood="poisson")],
    diabetes: [VBDTCRegressor()],
    two_noises: [VBFITCRegressor(), VBDTCRegressor()],
}


def main():
    cli = parser(__doc__)
    cli.add_argument("--draws", type=int, default=3)
    args = cli.parse_args()
    report = Report(args.json)
    for make, others in CASES.items():
        for seed in range(args.draws):
            X, y, X_new, y_new = make(seed)
            for model in [VBGPRegressor(), *others]:
                start = process_time()
                model.set_params(random_state=0).fit(X, y)
                seconds = process_time() - start
                of = {"include_noise": False} if make is outliers else {}
                mean, std = model.predict(X_new, return_std=True, **of)
                row = {"data": make.__name__, "draw": seed, "estimator": type(model).__name__}
                row |= scores(y_new, mean, std)
                report.add(**row, **{"fit CPU s": seconds})


if __name__ == "__main__":
    main()
