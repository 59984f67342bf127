"""Closed-form Psi of a block with dense noise precision, against loops that broadcast."""

from statistics import median
from time import perf_counter

import numpy as np
from common import Report, parser

from skvbgp.sgpr import psi


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=int, default=100)
    cli.add_argument("--n-inducing", type=int, default=100)
    cli.add_argument("--features", type=int, default=8)
    cli.add_argument("--repeats", type=int, default=3, help="the median of them is reported")
    args = cli.parse_args()

    rng = np.random.default_rng(0)
    X = rng.standard_normal((args.rows, args.features))
    nu = rng.uniform(0.3, 0.7, args.features)
    xi = 0.05 * nu**2
    Z = nu * rng.standard_normal((args.n_inducing, args.features))
    squared = np.sum((X[:, None] - X) ** 2, axis=2)
    C_inv = np.linalg.inv(np.exp(-0.5 * squared) + 0.5 * np.eye(args.rows))
    C_inv = 0.5 * (C_inv + C_inv.T)
    arguments = X, Z, nu, xi, 1.2, 0.1, C_inv

    expected, loop_seconds = timed(psi_by_broadcasting, arguments, args.repeats)
    report = Report(args.json)
    methods = {
        "loop, all pairs of rows": psi_by_broadcasting,
        "loop, each pair once": psi_by_broadcasting_pairs,
        "skvbgp.sgpr.psi": psi,
    }
    for name, method in methods.items():
        value, seconds = expected, loop_seconds
        if method is not psi_by_broadcasting:
            value, seconds = timed(method, arguments, args.repeats)
        deviation = float(np.max(np.abs(value - expected)) / np.max(np.abs(expected)))
        report.add(
            method=name,
            seconds=seconds,
            **{"times faster": loop_seconds / seconds, "max relative deviation": deviation},
        )


def timed(function, arguments, repeats):
    """The value, and the median time."""
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        value = function(*arguments)
        seconds.append(perf_counter() - start)
    return value, median(seconds)


def psi_by_broadcasting(X, Z, nu, xi, alpha, beta, C_inv):
    """Row by row: every (x', z, z') of a row x at once, in a loop over the inputs."""
    value = np.zeros((len(Z), len(Z)))
    for x, weights in zip(X, C_inv, strict=True):
        value += np.tensordot(weights, products(x, X, Z, nu, xi), axes=1)
    return (alpha**2 + beta) * value


def psi_by_broadcasting_pairs(X, Z, nu, xi, alpha, beta, C_inv):
    """The same from the rows x' that do not come before x: the others give the transpose."""
    value = np.zeros((len(Z), len(Z)))
    for i, x in enumerate(X):
        weights = C_inv[i, i:].copy()
        weights[0] *= 0.5
        value += np.tensordot(weights, products(x, X[i:], Z, nu, xi), axes=1)
    return (alpha**2 + beta) * (value + value.T)


def products(x, X, Z, nu, xi):
    """E[k(x, z) k(x', z')] for a row x, all rows x' of X and all pairs, (n, m, m).

    Given a = (x, x') of one input, (z, z') is scored by a Gaussian with mean nu a and
    covariance I + xi a a'.
    """
    exponent = np.zeros((len(X), len(Z), len(Z)))
    for k in range(len(nu)):
        a, a_prime = x[k], X[:, k, None, None]  # (), (n, 1, 1)
        r, r_prime = Z[:, k, None] - nu[k] * a, Z[:, k] - nu[k] * a_prime  # (m, 1), (n, 1, m)
        D = 1.0 + xi[k] * (a**2 + a_prime**2)
        cross = a * r_prime - a_prime * r
        exponent -= 0.5 * ((r**2 + r_prime**2 + xi[k] * cross**2) / D + np.log(D))
    return np.exp(exponent)


if __name__ == "__main__":
    main()
