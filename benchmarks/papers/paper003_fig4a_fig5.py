"""Paper 003, Figs. 3 (a), 4 (a) and 5 and Tables 2 and 3: belief on real data, runs, and time.

Rows of AIMPEAK, speeds over time and place, stand in for Swissgrid and IEQ. The kernels of the
grammar to level 2, 24 of them, all trained by mini-batches of 128 rows, with point estimates.

- Figs. 3 (a) and 4 (a): belief by the share of 4,000 rows, of the kernels that were among the first
  two (the paper: three) at some share. A share is a fit of its own of four passes.
- Tables 2 and 3: RMSE of the average over the ten kernels of highest belief (VBKS) and of the best
  one alone (VBKS-s), in runs with rows and starting values of their own. The paper has ten runs.
- Fig. 5: CPU seconds of a fit by steps, for mini-batches of several sizes; three kernels, one after
  another, whose search for starting values is what a line begins with.
"""

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from common import load_split
from figures import Options, Result, rmse
from paper003_fig2 import draw
from paper003_fig3_fig4 import take

from skvbgp import VBKSRegressor, kernel_grammar

N_INDUCING, BATCH_SIZE, PASSES, TOP_K, N_JOBS = 64, 128, 4, 10, 2
BATCH_SIZES, TIMED, TEST_ROWS = (64, 128, 256, 512), ("SE", "RQ", "LIN"), 2_000


def run(options: Options) -> Result:
    n, n_runs = (1_000, 1) if options.quick else (4_000, 3)
    shares = [0.2, 1.0] if options.quick else [0.1, 0.2, 0.5, 1.0]
    kernels = kernel_grammar(1 if options.quick else 2)
    names = [name for name, _ in kernels]
    split = load_split(options.data, "aimpeak", 0)
    X, y, *_ = take(split, n, 1, options.seed)
    beliefs = []
    for share in shares:
        first = slice(round(share * n))
        model = fit(kernels, X[first], y[first], options.seed, PASSES, BATCH_SIZE, n_jobs=N_JOBS)
        beliefs.append(model.kernel_posterior_)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    beliefs = np.array(beliefs)
    best = int(np.argmax(beliefs[-1]))
    drawn = draw(left, shares, beliefs, names, best)
    left.set(xlabel="share of the data", ylabel="belief", title="Fig. 4 (a)")
    by_share = [
        {"kernel": names[k]} | dict(zip(map(str, shares), map(float, beliefs[:, k]), strict=True))
        for k in drawn
    ]
    runs = [{"run": k} | scores_of_run(kernels, split, n, options.seed + k) for k in range(n_runs)]
    seconds = seconds_by_steps(X, y, options.seed, [1, 16] if options.quick else [1, 8, 16])
    for size in BATCH_SIZES:
        points = [(row["steps"], row["seconds"]) for row in seconds if row["rows"] == size]
        right.plot(*np.transpose(points), marker=".", label=f"{size} rows")
    right.set(xlabel="steps", ylabel="CPU seconds", title="Fig. 5")
    right.legend()
    return Result(
        figure,
        {
            "Fig. 4 (a): belief by share of the data": by_share,
            "Tables 2 and 3: RMSE": runs,
            "Fig. 5: CPU seconds by steps, by the rows of a mini-batch": seconds,
        },
    )


def fit(kernels, X, y, seed, n_passes, batch_size, **options):
    return VBKSRegressor(
        kernels, n_inducing=N_INDUCING, n_trained=None, n_restarts=1, top_k=TOP_K,
        max_iter=n_passes, batch_size=batch_size, random_state=seed, **options,
    ).fit(X, y)  # fmt: skip


def scores_of_run(kernels, split, n, seed):
    """RMSE of the best kernel alone and of the average, with rows of their own."""
    X, y, X_test, y_test = take(split, n, TEST_ROWS, seed)
    model = fit(kernels, X, y, seed, PASSES, BATCH_SIZE, n_jobs=N_JOBS)
    return {
        "first": model.best_kernel_[0],
        "VBKS-s": rmse(y_test, model.estimators_[0].predict(X_test)),
        "VBKS": rmse(y_test, model.predict(X_test)),
    }


def seconds_by_steps(X, y, seed, passes):
    """Rows with the size of a mini-batch, the number of steps, and CPU seconds."""
    kernels = [(name, kernel) for name, kernel in kernel_grammar(1) if name in TIMED]
    rows = []
    for size in BATCH_SIZES:
        for n_passes in passes:
            start = process_time()
            fit(kernels, X, y, seed, n_passes, size, n_jobs=1)
            steps = n_passes * -(-len(y) // size)
            rows.append({"rows": size, "steps": steps, "seconds": process_time() - start})
    return rows
