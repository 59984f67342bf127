"""Known noise variances of rows (`y_var`): accuracy with them and without.

A function of two inputs, with noise of variance 0.01 and log-normal known variances about 0.08 on
top. Equal numbers of training and test rows; means over the seeds. NLPD is that of observations,
with the test rows' variances where the model was told of them; RMSE that of the function.
"""

import numpy as np
from common import Report, nlpd, parser

import skvbgp


def make_rows(n, rng):
    """X (n, 2), the function, observations and the known variances, each (n,)."""
    X = rng.uniform(-2.0, 2.0, (n, 2))
    f = np.sin(2.0 * X[:, 0]) + np.cos(1.5 * X[:, 1])
    y_var = np.exp(rng.normal(np.log(0.08), 1.0, n))
    return X, f, f + np.sqrt(0.01 + y_var) * rng.standard_normal(n), y_var


def measure(model, n, seed, told):
    """Scores of one seed, with the variances in training and prediction or without."""
    rng = np.random.default_rng(seed)
    X, _, y, y_var = make_rows(n, rng)
    X_test, f_test, y_test, y_var_test = make_rows(n, rng)
    model.set_params(random_state=seed).fit(X, y, y_var=y_var if told else None)
    noise = y_var_test if told else None
    mean, std = model.predict(X_test, return_std=True, y_var=noise)
    return {
        "NLPD": nlpd(y_test, mean, std),
        "RMSE of f": float(np.sqrt(np.mean((mean - f_test) ** 2))),
        "learned variance": float(np.mean(model.noise_variance_)),
    }


def main():
    cli = parser(__doc__)
    cli.add_argument("--estimators", nargs="+", default=["VBDTCRegressor", "VBPICRegressor"])
    cli.add_argument("--rows", type=int, default=1000)
    cli.add_argument("--seeds", type=int, default=5)
    args = cli.parse_args()
    report = Report(args.json)
    for name in args.estimators:
        for told in (True, False):
            model = getattr(skvbgp, name)()
            rows = [measure(model, args.rows, seed, told) for seed in range(args.seeds)]
            means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            report.add(model=name, y_var=told, **means)


if __name__ == "__main__":
    main()
