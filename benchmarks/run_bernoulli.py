"""Two classes by GPBoost's Vecchia process; run by an interpreter that has it.

The splits are in a file: X0, y0 and X_test0 are the first one's, standardised. Prints a JSON line
for each split: the probability of class 1 of its test rows, and processor seconds of fit and
prediction.
"""

import argparse
import json
from pathlib import Path
from time import process_time

import numpy as np
from run_peer import make_gpboost

#: Of a fit.
MOST_ITERATIONS = 50


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("file", type=Path)
    with np.load(cli.parse_args().file) as file:
        for k in range(len(file) // 3):
            p, seconds = predict(file[f"X{k}"], file[f"y{k}"], file[f"X_test{k}"])
            print(json.dumps({"p": p.tolist(), "seconds": seconds}), flush=True)


def predict(X, y, X_test):
    """Probit; beyond 2,000 rows with conjugate gradients, as its authors recommend."""
    start = process_time()
    solver = "iterative" if len(y) > 2_000 else "cholesky"
    model = make_gpboost(X, seed=0, likelihood="bernoulli_probit", matrix_inversion_method=solver)
    model.fit(y=y.astype(float), X=np.ones((len(y), 1)), params={"maxit": MOST_ITERATIONS})
    fitted = process_time()
    predicted = model.predict(
        gp_coords_pred=X_test, X_pred=np.ones((len(X_test), 1)), predict_response=True
    )
    return np.asarray(predicted["mu"]), [fitted - start, process_time() - fitted]


if __name__ == "__main__":
    main()
