"""Figs. 1 and 3 of the paper: RMSE against passes, by gamma and by the draws in prediction."""

from pathlib import Path

import numpy as np
from common import Report, load_split, parser

from skvbgp import SVBSSGPRegressor


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--dataset", default="aimpeak")
    cli.add_argument("--passes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    cli.add_argument("--gamma", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3])
    cli.add_argument("--n-samples", type=int, nargs="+", default=[1, 2, 5, 20])
    cli.add_argument("--n-frequencies", type=int, default=100)
    cli.add_argument("--objective", choices=["blocks", "bound"], default="blocks")
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument("--figure", type=Path, default=Path("spectrum_figures.png"))
    args = cli.parse_args()
    X, y, X_test, y_test = load_split(args.data, args.dataset, args.split)
    settings = [{"gamma": gamma, "n_samples": 20} for gamma in args.gamma]
    settings += [{"gamma": 0.0, "n_samples": r} for r in args.n_samples]
    report, curves = Report(args.json), [[] for _ in settings]
    for passes in args.passes:
        model = SVBSSGPRegressor(
            args.n_frequencies, objective=args.objective, max_iter=passes, random_state=0
        ).fit(X, y)
        for setting, curve in zip(settings, curves, strict=True):
            error = model.set_params(**setting).predict(X_test) - y_test
            curve.append(float(np.sqrt(np.mean(error**2))))
            report.add(passes=passes, **setting, RMSE=curve[-1])
    plot(args, settings, curves)


def plot(args, settings, curves):
    """One panel for gamma, one for the number of draws."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    for k, (setting, curve) in enumerate(zip(settings, curves, strict=True)):
        by_gamma = k < len(args.gamma)
        label = f"gamma = {setting['gamma']:g}" if by_gamma else f"r = {setting['n_samples']}"
        axes[0 if by_gamma else 1].plot(args.passes, curve, marker=".", label=label)
    for axis in axes:
        axis.set(xscale="log", xlabel="passes in each phase")
        axis.legend()
    axes[0].set_ylabel(f"RMSE, {args.dataset}")
    figure.savefig(args.figure)


if __name__ == "__main__":
    main()
