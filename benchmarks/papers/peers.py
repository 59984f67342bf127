"""GPyTorch and GPflow, each in an environment of its own."""

import json
import subprocess
import sys
import venv
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]

#: Names of the peers' models in tables, by the name of the peer.
PEERS = {"gpytorch": "GPyTorch SVGP", "gpflow": "GPflow SVGP"}


def environments(folder):
    """Interpreter of each peer; environments that are not yet in the folder are made."""
    return {peer: environment(folder / peer, peer) for peer in PEERS}


def environment(folder, peer):
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    installed = folder / "installed"
    if not installed.exists():
        venv.create(folder, with_pip=True, clear=True)
        requirements = BENCHMARKS / f"requirements-{peer}.txt"
        # One retry: without PyTorch's own index, pip asks it in vain for every package.
        install = [python, "-m", "pip", "install", "-q", "--retries", "1", "-r", requirements]
        subprocess.run(install, check=True)
        installed.touch()
    return python


def learning_curve(
    peer, python, options, *, dataset, passes, n_inducing, batch_size, n_rows, stride=1
):
    """Rows with model, passes, RMSE and seconds of training at some passes of one run."""
    steps = [n_passes * (n_rows // batch_size) for n_passes in passes]
    command = [
        python, "-W", "ignore", BENCHMARKS / "run_peer.py", peer, f"--data={options.data}",
        f"--dataset={dataset}", f"--stride={stride}", f"--n-inducing={n_inducing}",
        f"--batch-size={batch_size}", f"--seed={options.seed}",
        "--at", *map(str, steps),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    checkpoints = map(json.loads, done.stdout.splitlines())
    return [
        {
            "model": PEERS[peer],
            "passes": n_passes,
            "RMSE": checkpoint["rmse"],
            "seconds": checkpoint["seconds"],
        }
        for n_passes, checkpoint in zip(passes, checkpoints, strict=True)
    ]
