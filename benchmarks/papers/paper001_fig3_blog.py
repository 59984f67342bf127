"""Paper 001, Fig. 3 (b): RMSE of sVBSSGP with many inputs, by passes and draws in prediction.

In the place of BLOG feedback stand simulated blogs, with inputs of the same meaning and a third of
the rows, and bike with its seventeen inputs. Five frequencies (2 m = 10 features), gamma = 0 and
blocks of 285 rows as in the paper. Frequencies follow the bound, by natural steps or by the paper's
reparameterised gradient; and, the package's default, the evidence of the blocks.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import load_split
from figures import Options, Result, draw_curves, fits, pivoted, rmse

from skvbgp import SVBSSGPRegressor

N_FREQUENCIES, BLOCK_ROWS, DRAWS = 5, 285, [1, 2, 5, 10, 20]
TRAINING = {
    "bound, natural": {"objective": "bound"},
    "bound, adam": {"objective": "bound", "solver": "adam"},
    "blocks": {"objective": "blocks"},
}
N_ROWS, N_SITES, TEST_SHARE = 20_000, 200, 0.05


def run(options: Options) -> Result:
    passes = [1, 2] if options.quick else [1, 2, 4, 8, 16, 32]
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    data = {
        "blogs": simulated_blogs(np.random.default_rng(options.seed)),
        "bike": load_split(options.data, "bike", 0),
    }
    tables = {}
    for (name, (X, y, X_test, y_test)), row in zip(data.items(), axes, strict=True):
        for (label, parameters), axis in zip(TRAINING.items(), row, strict=True):
            regressor = SVBSSGPRegressor(
                N_FREQUENCIES,
                **parameters,
                n_blocks=round(len(y) / BLOCK_ROWS),
                n_neighbors=None,
                random_state=options.seed,
            )
            errors = [
                {
                    "passes": n_passes,
                    "r": r,
                    "RMSE": rmse(y_test, model.set_params(n_samples=r).predict(X_test)),
                }
                for n_passes, _, model in fits(regressor, X, y, passes)
                for r in DRAWS
            ]
            draw_curves(axis, errors, "r", label="r = {}")
            axis.set_title(f"{name}: {label}")
            title = f"RMSE by draws r, {name} ({y_test.std():.4g} without X): {label}"
            tables[title] = pivoted(errors, "passes", "r", "RMSE")
    return Result(figure, tables)


def simulated_blogs(rng):
    """X_train, y_train, X_test, y_test: comments on posts of some sites in the next 24 hours.

    Comments and links come at rates that fall with a post's age. Inputs 51 to 60 are, for each of
    both, their number until now, in the last 24 hours, in the 24 before, in the first 24, and the
    second less the third; 1 to 50 are average, standard deviation, minimum, maximum and median of
    these over the posts of the site.
    """
    site = rng.integers(N_SITES, size=N_ROWS)
    age, scale = rng.uniform(0.0, 72.0, N_ROWS), rng.lognormal(np.log(15.0), 0.3, N_ROWS)
    fame = rng.normal(0.0, 1.2, N_SITES)[site] + rng.normal(0.0, 0.7, N_ROWS)
    times = [0 * age, age - 48, age - 24, np.minimum(age, 24), age, age + 24]
    times = np.sort(np.maximum(times, 0.0), axis=0)
    comments, links = (
        rng.poisson(np.exp(level + fame) * np.diff(-np.exp(-times / scale), axis=0))
        for level in (2.0, 0.0)
    )

    def between(counts, first, last):
        return np.sum(counts * ((times[:-1] >= first) & (times[1:] <= last)), axis=0)

    posts = []
    for counts in (comments, links):
        recent, before = between(counts, age - 24, age), between(counts, age - 48, age - 24)
        earliest = between(counts, 0.0, np.minimum(age, 24))
        posts += [between(counts, 0.0, age), recent, before, earliest, recent - before]
    own = np.column_stack(posts).astype(float)
    statistics = [np.mean, np.std, np.min, np.max, np.median]
    of_site = np.array(
        [np.ravel([f(own[site == k], axis=0) for f in statistics]) for k in range(N_SITES)]
    )
    X, y = np.hstack([of_site[site], own]), between(comments, age, age + 24).astype(float)
    test = rng.uniform(size=N_ROWS) < TEST_SHARE
    return X[~test], y[~test], X[test], y[test]
