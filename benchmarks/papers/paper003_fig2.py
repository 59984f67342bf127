"""Paper 003, Fig. 2 (a, b): belief about twelve kernels as more of the data are used.

Data from two known kernels (Sec. 6.1, App. E.1): 256 values of a Gaussian process in [-10, 10] are
drawn, and its mean given them is read off at 1,000 other inputs. Kernels of Table 1, lines through
the origin, processes of mean zero, sixteen fixed inducing inputs, mini-batches of 32 rows. What is
ours:

- The paper's values have no noise, and it does not tell the noise of its models. Then bounds of
  sixteen inducing inputs differ by hundreds of nats according to how well so few represent the one
  function, so that noise of 0.3 standard deviations is added here.
- A share of the data are its first rows, in a fit of its own of thirty passes; the paper's curves
  seem to be one pass.
- Four draws for each kernel. "lead" is the bound of the true kernel minus the highest of the
  others, in nats; "lead (128)" is that with 128 inducing inputs, which is close to the evidence and
  tells how much the data themselves decide.
"""

import matplotlib.pyplot as plt
import numpy as np
from figures import Options, Result
from kernel_selection_flights import K12

from skvbgp import VBKSRegressor, kernel_grammar
from skvbgp.kernels import Linear, Periodic, RationalQuadratic


def line(length_scale=1.0):
    return Linear(length_scale, offset=0.0, offset_bounds="fixed")


#: App. E.1; the factors 0.1**2 only scale the data.
TRUE_KERNELS = {
    "RQ * LIN * PER": Periodic(1.0, period=2.0 * np.pi) * line(3.0) * RationalQuadratic(8.0),
    "LIN * (RQ + PER)": (Periodic(2.0, period=2.0 * np.pi) + RationalQuadratic(3.0)) * line(5.0),
}
NOISE = 0.3
MINI_BATCHES = {"batch_size": 32, "max_iter": 30, "n_trained": None}
N_INDUCING, MANY_INDUCING = 16, 128


def run(options: Options) -> Result:
    seeds = range(options.seed, options.seed + (1 if options.quick else 4))
    shares = [0.05, 1.0] if options.quick else [0.05, 0.1, 0.2, 0.5, 1.0]
    figure, axes = plt.subplots(
        2, len(seeds), squeeze=False, sharex=True, sharey=True,
        figsize=(1.0 + 3.2 * len(seeds), 6.0), layout="constrained",
    )  # fmt: skip
    rows = []
    for (true, kernel), panels in zip(TRUE_KERNELS.items(), axes, strict=True):
        for seed, axis in zip(seeds, panels, strict=True):
            X, y = synthetic_data(kernel, np.random.default_rng(seed))
            numbers = [round(share * len(X)) for share in shares]
            models = [fit(X[:n], y[:n], **MINI_BATCHES) for n in numbers]
            beliefs = np.array([model.kernel_posterior_ for model in models])
            i = K12.index(true)
            by_share = {
                f"belief at {share:g}": float(belief)
                for share, belief in zip(shares, beliefs[:, i], strict=True)
            }
            rows.append(
                {
                    "true kernel": true,
                    "draw": seed,
                    **by_share,
                    "first": models[-1].best_kernel_[0],
                    "lead": lead(models[-1], i),
                    f"lead ({MANY_INDUCING})": lead(fit(X, y, MANY_INDUCING), i),
                }
            )
            draw(axis, shares, beliefs, K12, i)
            axis.set_title(f"{true}, draw {seed}", fontsize="small")
    figure.supxlabel("share of the data")
    figure.supylabel("belief")
    return Result(figure, {"Belief in the true kernel by share of the data": rows})


def synthetic_data(kernel, rng, n_drawn=256, n=1000):
    """X (n, 1) of mean zero, which is where the regressor has its origin, and y (n,)."""
    X0, X = rng.uniform(-10.0, 10.0, (n_drawn, 1)), rng.uniform(-10.0, 10.0, (n, 1))
    X -= X.mean()
    variances, vectors = np.linalg.eigh(kernel(X0))
    kept = variances > 1e-10 * variances.max()
    roots = np.sqrt(variances[kept])
    weights = vectors[:, kept] @ (rng.standard_normal(kept.sum()) / roots)  # K^-1 y0
    f = kernel(X, X0) @ weights
    return X, f / f.std() + NOISE * rng.standard_normal(n)


def fit(X, y, n_inducing=N_INDUCING, names=K12, **options):
    grammar = dict(kernel_set_144())
    kernels = [(name, grammar[name]) for name in names]
    return VBKSRegressor(
        kernels, n_inducing=n_inducing, normalize_y=False, random_state=0, n_jobs=2, **options
    ).fit(X, y)


def kernel_set_144():
    """(name, kernel) pairs of the grammar to level 3, with lines through the origin."""
    return kernel_grammar(base=("SE", "RQ", ("LIN", line()), "PER"))


def lead(model, i):
    bounds = model.local_lower_bounds_
    return float(bounds[i] - np.delete(bounds, i).max())


def draw(axis, shares, beliefs, names, true):
    """Kernels that were among the first two at any share, and the true one as a thick line.

    Returns which.
    """
    drawn = sorted({true, *np.argsort(-beliefs, axis=1)[:, :2].ravel()})
    for k in drawn:
        width = 3.0 if k == true else 1.0
        axis.plot(shares, beliefs[:, k], marker=".", linewidth=width, label=names[k])
    axis.legend(fontsize="xx-small")
    return drawn
