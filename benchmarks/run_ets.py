"""Forecasts of series by exponential smoothing; run by an interpreter that has statsmodels.

Trend, damping, season and its period are those of the smallest AICc. One JSON line for each series,
of standardised y: null for a series whose test rows do not follow its training rows.
"""

import json
import warnings

import numpy as np
from common import load_series, parser
from statsmodels.tsa.holtwinters import ExponentialSmoothing

PERIODS = (0, 4, 7, 12, 24, 52)


def main():
    arguments = parser(__doc__, data=True)
    arguments.add_argument("--file", default="timeseries")
    arguments.add_argument("--only", default="")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    for name, t, y, t_test, _ in load_series(options.data, options.file):
        if options.only in name:
            mean = forecast(t[:, 0], y, t_test[:, 0])
            print(json.dumps({"series": name, "mean": mean}), flush=True)


def forecast(t, y, t_test):
    """Forecasts as a list, at times in the median spacing of the training rows."""
    steps = np.rint((t_test - t[-1]) / np.median(np.diff(np.sort(t)))).astype(int)
    if steps.min() < 1:
        return None
    fits = [fit for fit in map(lambda form: smooth(y, *form), forms(len(y))) if fit is not None]
    best = min(fits, key=lambda fit: fit.aicc)
    return best.forecast(steps.max())[steps - 1].tolist()


def forms(n):
    """Trend, damped or not, season and period."""
    for period in PERIODS:
        for trend, damped in ((None, False), ("add", False), ("add", True)):
            if n >= 3 * period:
                yield trend, damped, "add" if period else None, period or None


def smooth(y, trend, damped, season, period):
    """A fit, or None where the optimiser gives up."""
    try:
        return ExponentialSmoothing(
            y, trend=trend, damped_trend=damped, seasonal=season, seasonal_periods=period
        ).fit()
    except (ValueError, np.linalg.LinAlgError):
        return None


if __name__ == "__main__":
    main()
