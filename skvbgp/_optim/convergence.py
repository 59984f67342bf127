"""When a stochastic ascent has come to rest."""

import numpy as np

#: Steps over which the stochastic objective is averaged.
_AVERAGED_STEPS = 100


def has_converged(values: list[float], tol: float, steps_per_value: int) -> bool:
    """Whether the mean of the last values no longer exceeds that of the ones before.

    Parameters
    ----------
    values : list of float
        Averages of the objective over ``steps_per_value`` steps each.
    tol : float
        Smallest rise, relative to the mean, that counts.
    steps_per_value : int

    Returns
    -------
    converged : bool
    """
    window = -(-_AVERAGED_STEPS // steps_per_value)
    if len(values) < 2 * window:
        return False
    recent, before = np.mean(values[-window:]), np.mean(values[-2 * window : -window])
    return bool(recent - before < tol * (1.0 + abs(recent)))
