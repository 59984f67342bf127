"""Train one peer model and score it at checkpoints; run by the interpreter that has the peer.

Prints a JSON line per checkpoint: seconds of training (without scoring, imports and the
compilation of the first step), steps, NLPD, RMSE and coverage on the scale of y, seconds of
prediction. With --target, a checkpoint comes about --every second, and the run ends when the NLPD
has reached the target or the time the --limit; with --at, there is one after each of these numbers
of steps. A peer that fits as a whole has one checkpoint, whatever they say; some of these keep to
the --limit, see their functions.
"""

import argparse
import json
from pathlib import Path
from time import perf_counter

import numpy as np
from common import load_split, scores

#: Rows scored at once.
TILE = 4096


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("peer", choices=[*PEERS, *WHOLE])
    cli.add_argument("--data", type=Path, required=True, metavar="DIR")
    cli.add_argument("--dataset", default="kin40k")
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument("--n-inducing", type=int, default=500)
    cli.add_argument("--batch-size", type=int, default=1024)
    cli.add_argument("--stride", type=int, default=1, help="train on every so many rows")
    goal = cli.add_mutually_exclusive_group()
    goal.add_argument("--target", type=float)
    goal.add_argument("--at", type=int, nargs="+", metavar="STEPS")
    cli.add_argument("--limit", type=float, default=300.0, help="seconds of training")
    cli.add_argument("--exact-rows", type=int, default=1500, help="most rows of libkriging")
    cli.add_argument("--every", type=float, default=1.0, help="seconds between checkpoints")
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()
    if args.peer in PEERS and args.target is None and args.at is None:
        cli.error(f"{args.peer} needs --target or --at")

    X, y, X_test, y_test = load_split(args.data, args.dataset, args.split)
    X, y = X[:: args.stride], y[:: args.stride]
    scale = X.std(axis=0)
    scale[scale == 0.0] = 1.0
    offset, y_mean, y_std = X.mean(axis=0), y.mean(), y.std()
    X, X_test, y = (X - offset) / scale, (X_test - offset) / scale, (y - y_mean) / y_std

    def make_checkpoint(moments, seconds, steps):
        start = perf_counter()
        tiles = [X_test[a : a + TILE] for a in range(0, len(X_test), TILE)]
        mean, variance = (np.concatenate(m) for m in zip(*map(moments, tiles), strict=True))
        predicting = perf_counter() - start
        score = scores(y_test, mean * y_std + y_mean, np.sqrt(variance) * y_std)
        checkpoint = {"seconds": seconds, "steps": steps, "predict seconds": predicting}
        checkpoint |= {name.lower(): value for name, value in score.items()}
        print(json.dumps(checkpoint), flush=True)
        return checkpoint

    if args.peer in WHOLE:
        start = perf_counter()
        moments = WHOLE[args.peer][1](X, y, args)
        make_checkpoint(moments, perf_counter() - start, None)
        return

    rng = np.random.default_rng(args.seed)
    Z = X[rng.choice(len(X), args.n_inducing, replace=False)]
    batch_size = min(args.batch_size, len(X))
    step, moments = PEERS[args.peer][1](X, y, Z, batch_size, args.seed)

    seconds, since, steps = 0.0, 0.0, 0
    for rows in minibatches(len(X), batch_size, rng):
        start = perf_counter()
        step(rows)
        elapsed = perf_counter() - start
        seconds, since, steps = seconds + elapsed, since + elapsed, steps + 1
        if args.at is not None:
            due, last = steps in args.at, steps == max(args.at)
        else:
            last = seconds >= args.limit
            due = last or since >= args.every
        if not due:
            continue
        since = 0.0
        checkpoint = make_checkpoint(moments, seconds, steps)
        if last or (args.target is not None and checkpoint["nlpd"] <= args.target):
            return


def minibatches(n, batch_size, rng):
    while True:
        order = rng.permutation(n)
        yield from (order[a : a + batch_size] for a in range(0, n - batch_size + 1, batch_size))


def gpytorch_svgp(X, y, Z, batch_size, seed):
    """GPyTorch's SVGP, Adam on everything, single precision (its default)."""
    import gpytorch
    import torch

    torch.manual_seed(seed)
    X, y, Z = (torch.as_tensor(a, dtype=torch.float32) for a in (X, y, Z))

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, Z.clone(), q, learn_inducing_locations=True
                )
            )
            self.mean = gpytorch.means.ConstantMean()
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.kernel = gpytorch.kernels.ScaleKernel(rbf)

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)

    def step(rows):
        model.train()
        optimizer.zero_grad()
        loss = -bound(model(X[rows]), y[rows])
        loss.backward()
        optimizer.step()

    def moments(inputs):
        model.eval()
        with torch.no_grad():
            predicted = likelihood(model(torch.as_tensor(inputs, dtype=torch.float32)))
            mean, variance = predicted.mean.numpy(), predicted.variance.numpy()
        return mean.astype(float), variance.astype(float)

    return step, moments


def gpflow_svgp(X, y, Z, batch_size, seed):
    """GPflow's SVGP: natural gradients on q(u), Adam on the rest, double precision (its default).

    Its compiled step is run once before the clock starts.
    """
    import gpflow
    import tensorflow as tf

    tf.random.set_seed(seed)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), Z, num_data=len(X))
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural, adam = gpflow.optimizers.NaturalGradient(0.1), tf.optimizers.Adam(0.01)
    X, y = tf.constant(X), tf.constant(y[:, None])

    @tf.function
    def compiled(rows):
        batch = tf.gather(X, rows), tf.gather(y, rows)
        natural.minimize(lambda: model.training_loss(batch), [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            loss = model.training_loss(batch)
        variables = model.trainable_variables
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def step(rows):
        compiled(tf.constant(rows)).numpy()  # wait for it

    def moments(inputs):
        return [moment.numpy()[:, 0] for moment in model.predict_y(inputs)]

    step(np.arange(batch_size))
    return step, moments


#: Of more, an iteration of GPBoost's full-scale variant takes minutes on two cores.
MOST_FULL_SCALE_ROWS = 5_000


def make_gpboost(X, seed, *, gp_approx="vecchia", **options):
    """GPBoost's Vecchia approximation: Matern-3/2, a length scale for each input, 20 neighbours."""
    import gpboost

    X = X + 1e-9 * np.random.default_rng(seed).standard_normal(X.shape)  # distinct places
    return gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx=gp_approx,
        num_neighbors=20,
        seed=seed,
        **options,
    )


def gpboost_moments(model):
    def moments(inputs):
        predicted = model.predict(gp_coords_pred=inputs, predict_var=True, predict_response=True)
        return predicted["mu"], predicted["var"]

    return moments


def fit_within(model, y, limit, start):
    """Fit a model of GPBoost in about `limit` seconds since `start`.

    It has no limit of time. A fit of one iteration is timed, and further ones go on from its
    parameters, each of as many iterations as the rest of the time allows, until that is over or
    the likelihood grows no more. The first one is made however long it takes.
    """
    params, n_iter, best = {}, 1, np.inf
    while True:
        before = perf_counter()
        model.fit(y=y, params=params | {"maxit": n_iter})
        now = perf_counter()
        each, rest = (now - before) / n_iter, limit - (now - start)
        loss = model.get_current_neg_log_likelihood()
        if rest < each or loss > best - 1e-6 * abs(best):
            return
        params = {"init_cov_pars": np.ravel(np.asarray(model.get_cov_pars(), dtype=float))}
        n_iter, best = int(rest / each), loss


def gpboost_vecchia(X, y, args):
    """GPBoost with its own settings of the optimiser, until that ends."""
    model = make_gpboost(X, args.seed)
    model.fit(y=y)
    return gpboost_moments(model)


def gpboost_limited(X, y, args):
    """The same, in about --limit seconds."""
    start = perf_counter()
    model = make_gpboost(X, args.seed)
    fit_within(model, y, args.limit, start)
    return gpboost_moments(model)


def gpboost_full_scale(X, y, args):
    """Neighbours and 200 inducing points, in about --limit seconds, of few rows."""
    if len(X) > MOST_FULL_SCALE_ROWS:
        raise SystemExit(f"{len(X)} rows: an iteration would take minutes")
    start = perf_counter()
    n_inducing = min(200, len(X) // 2)
    model = make_gpboost(X, args.seed, gp_approx="full_scale_vecchia", num_ind_points=n_inducing)
    fit_within(model, y, args.limit, start)
    return gpboost_moments(model)


def libkriging(X, y, args):
    """libKriging's exact process of at most --exact-rows random rows: Matern-3/2 and a nugget.

    Its standard deviation has the nugget, except at a place of a training row, where it is zero:
    inputs of predictions are moved by 1e-6 of a standard deviation.
    """
    import pylibkriging

    rng = np.random.default_rng(args.seed)
    rows = rng.permutation(len(X))[: args.exact_rows]
    model = pylibkriging.Kriging(y[rows], X[rows], "matern3_2", noise="nugget")

    def moments(inputs):
        inputs = inputs + 1e-6 * rng.standard_normal(inputs.shape)
        mean, std, *_ = model.predict(inputs, True, False, False)
        return np.ravel(mean), np.ravel(std) ** 2

    return moments


#: Peers that are trained step by step, and those that fit as a whole: (package, function).
PEERS = {"gpytorch": ("gpytorch", gpytorch_svgp), "gpflow": ("gpflow", gpflow_svgp)}
WHOLE = {
    "gpboost": ("gpboost", gpboost_vecchia),
    "gpboost_60s": ("gpboost", gpboost_limited),
    "gpboost_full_scale": ("gpboost", gpboost_full_scale),
    "libkriging": ("pylibkriging", libkriging),
}


if __name__ == "__main__":
    main()
