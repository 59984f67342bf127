"""Paper 001, Figs. 1 and 3: RMSE of sVBSSGP on aimpeak, by gamma and by the draws in prediction.

The upper row trains as the paper does: the frequencies follow the variational bound. The lower row
is the package's default, where they follow the evidence of the blocks. 20 frequencies (2 m = 40
features) and 200 blocks as in the paper.
"""

import matplotlib.pyplot as plt
from common import load_split
from figures import Options, Result, draw_curves, fits, pivoted, rmse

from skvbgp import SVBSSGPRegressor

N_FREQUENCIES, N_BLOCKS = 20, 200
#: Values of gamma with the draws of the paper, then numbers of draws with its gamma.
GAMMAS, N_SAMPLES, DRAWS = [0.0, 0.1, 0.2, 0.3], 20, [1, 2, 5, 20]


def run(options: Options) -> Result:
    passes = [1, 2, 4] if options.quick else [1, 2, 4, 8, 16, 32]
    X, y, X_test, y_test = load_split(options.data, "aimpeak", 0)
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    tables = {}
    for objective, (left, right) in zip(["bound", "blocks"], axes, strict=True):
        regressor = SVBSSGPRegressor(
            N_FREQUENCIES,
            objective=objective,
            n_blocks=N_BLOCKS,
            n_neighbors=None,
            random_state=options.seed,
        )
        by_gamma, by_draws = [], []
        for n_passes, _, model in fits(regressor, X, y, passes):

            def error(gamma, n_samples, model=model):
                model.set_params(gamma=gamma, n_samples=n_samples)
                return rmse(y_test, model.predict(X_test))

            by_gamma += [
                {"passes": n_passes, "gamma": gamma, "RMSE": error(gamma, N_SAMPLES)}
                for gamma in GAMMAS
            ]
            by_draws += [
                {"passes": n_passes, "r": draws, "RMSE": error(0.0, draws)} for draws in DRAWS
            ]
        for number, axis, rows, key in [(1, left, by_gamma, "gamma"), (3, right, by_draws, "r")]:
            title = f"Fig. {number}, objective={objective!r}"
            tables[f"{title}: RMSE by {key}"] = pivoted(rows, "passes", key, "RMSE")
            draw_curves(axis, rows, key, label=key + " = {}")
            axis.set_title(title)
    return Result(figure, tables)
