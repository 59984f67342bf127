"""Paper 003, Fig. 2 (c, d): belief about 144 kernels as more of the data are used.

Data, noise and shares are those of Fig. 2 (a, b), one draw for each true kernel as in the paper.
All kernels of the grammar to level 3 are searched for starting values; the thirty of highest bound
are trained further, the paper trains them all. "rank" is the place of the true kernel by its bound.
Drawn are the kernels that were among the first two at some share; "lead (128)" is the true
kernel's over the others of these, with 128 inducing inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from figures import Options, Result
from paper003_fig2 import (
    MANY_INDUCING,
    MINI_BATCHES,
    TRUE_KERNELS,
    draw,
    fit,
    kernel_set_144,
    lead,
    synthetic_data,
)


def run(options: Options) -> Result:
    shares = [0.05, 0.2] if options.quick else [0.05, 0.1, 0.2, 0.5, 1.0]
    search = {"n_restarts": 1} if options.quick else {}
    names = [name for name, _ in kernel_set_144()]
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(9.0, 4.0), layout="constrained")
    rows, firsts = [], []
    for (true, kernel), axis in zip(TRUE_KERNELS.items(), axes, strict=True):
        X, y = synthetic_data(kernel, np.random.default_rng(options.seed))
        i, beliefs = names.index(true), []
        for share in shares:
            n = round(share * len(X))
            model = fit(X[:n], y[:n], names=names, **MINI_BATCHES, **search)
            bounds, belief = model.local_lower_bounds_, model.kernel_posterior_
            beliefs.append(belief)
            rows.append(
                {
                    "true kernel": true,
                    "share": share,
                    "belief": float(belief[i]),
                    "rank": int(np.sum(bounds > bounds[i])) + 1,
                    "first": model.best_kernel_[0],
                    "its belief": float(belief[np.argmax(bounds)]),
                    "lead": lead(model, i),
                }
            )
        drawn = draw(axis, shares, np.array(beliefs), names, i)
        contenders = [names[k] for k in drawn]
        many = fit(X[:n], y[:n], MANY_INDUCING, contenders)
        firsts.append(
            {
                "true kernel": true,
                "among the first two": ", ".join(contenders),
                f"first ({MANY_INDUCING})": many.best_kernel_[0],
                f"lead ({MANY_INDUCING})": lead(many, contenders.index(true)),
            }
        )
        axis.set_title(true, fontsize="small")
    figure.supxlabel("share of the data")
    figure.supylabel("belief")
    return Result(
        figure,
        {"Belief by share of the data": rows, "Kernels that were ever first or second": firsts},
    )
