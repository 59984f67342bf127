"""Seconds of training until a test NLPD is reached, against GPyTorch's and GPflow's SVGP."""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from common import Report, load_split, nlpd, parser

from skvbgp import VBDTCRegressor

PEERS = ["gpytorch", "gpflow"]


def main():
    cli = parser(__doc__, data=True)
    cli.add_argument("--peers-python", help="interpreter that has the peers; none: only skvbgp")
    cli.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    cli.add_argument("--dataset", default="kin40k")
    cli.add_argument("--split", type=int, default=0)
    cli.add_argument("--targets", type=float, nargs="+", default=[0.2, 0.0, -0.14])
    cli.add_argument("--n-inducing", type=int, default=500)
    cli.add_argument(
        "--passes", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8, 10, 13, 17, 22, 28, 36]
    )
    cli.add_argument("--limit", type=float, default=300.0, help="seconds of training, for peers")
    cli.add_argument("--every", type=float, default=1.0, help="seconds between peers' checkpoints")
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()

    runs = {"skvbgp": own_fits(args)}
    if args.peers_python is not None:
        runs |= {peer: checkpoints(peer, args) for peer in args.peers}
    report = Report(args.json)
    for target in sorted(args.targets, reverse=True):
        seconds = {name: first_within(run, target) for name, run in runs.items()}
        ratios = {f"{p} / skvbgp": ratio(seconds[p], seconds["skvbgp"]) for p in list(runs)[1:]}
        report.add(NLPD=target, **{f"{name} s": s for name, s in seconds.items()}, **ratios)


def own_fits(args):
    """(seconds, NLPD) of fits with more and more passes, up to the one with the lowest target.

    The step sizes anneal over a fit, so that each budget is a fit of its own.
    """
    X, y, X_test, y_test = load_split(args.data, args.dataset, args.split)
    VBDTCRegressor(10, solver="stochastic", max_iter=1).fit(X[:200], y[:200])  # imports
    run = []
    for passes in sorted(args.passes):
        model = VBDTCRegressor(
            args.n_inducing, solver="stochastic", max_iter=passes, random_state=args.seed
        )
        start = perf_counter()
        model.fit(X, y)
        seconds = perf_counter() - start
        run.append((seconds, nlpd(y_test, *model.predict(X_test, return_std=True))))
        log(f"skvbgp, {passes} passes", *run[-1])
        if run[-1][1] <= min(args.targets):
            break
    return run


def checkpoints(peer, args):
    """(seconds, NLPD) of a peer's checkpoints, up to the one with the lowest target."""
    options = ["data", "dataset", "split", "n_inducing", "limit", "every", "seed"]
    command = [args.peers_python, "-W", "ignore", Path(__file__).with_name("run_peer.py"), peer]
    command += [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in options]
    command += [f"--target={min(args.targets)}"]
    run = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            checkpoint = json.loads(line)
            run.append((checkpoint["seconds"], checkpoint["nlpd"]))
            log(f"{peer}, {checkpoint['steps']} steps", *run[-1])
    if process.returncode != 0:
        raise SystemExit(f"{peer} failed with exit code {process.returncode}")
    return run


def first_within(run, target):
    """Fewest seconds with which the target was reached, or None."""
    return min((seconds for seconds, score in run if score <= target), default=None)


def ratio(a, b):
    return None if a is None or b is None else a / b


def log(name, seconds, score):
    print(f"{name}: {seconds:.2f} s, NLPD {score:.4f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
