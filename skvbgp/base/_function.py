"""What regressors say of their function besides predictions: draws, gradients, relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.blockwise import by_tile
from skvbgp._core.linalg import Array
from skvbgp._core.order import thin
from skvbgp._core.owners import Owners, find_first_columns
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base._validation import as_count

#: Most rows that relevance is averaged over.
_RELEVANCE_ROWS = 1_000


class Draws(Protocol):
    """Functions of rows, and their derivatives."""

    def __call__(self, X: Array) -> Array: ...

    def gradient(self, X: Array) -> Array: ...


@dataclass(frozen=True)
class ScaledDraws:
    """Functions S of one output on the scale of y, by what they are in scaled units.

    A subclass implements ``_evaluate(X)`` and ``_differentiate(X)``, values (n, S) and derivatives
    (n, d, S) at scaled rows, and maybe ``_map``, which calls them.
    """

    coordinates: Coordinates
    target: Target

    _evaluate: ClassVar[Callable[..., Array]]
    _differentiate: ClassVar[Callable[..., Array]]

    def __call__(self, X: Array) -> Array:
        """Values (n, S)."""
        with single_blas_thread:
            values = self._map(self._evaluate, self.coordinates.scaled(X))
        return self.target.original(values)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, S), in units of y over those of each input."""
        with single_blas_thread:
            slopes = self._map(self._differentiate, self.coordinates.scaled(X))
        return slopes * (self.target.unit / self.coordinates.scale[:, None])

    def _map(self, function: Callable[..., Array], X: Array) -> Array:
        """What a function says of scaled rows, some at a time."""
        return by_tile(function, X)


@dataclass(frozen=True)
class OutputsDraws:
    """Functions from the posteriors of several outputs.

    Calling it with rows X gives the values (n_samples, t, n) of n functions of each output.
    """

    outputs: tuple[Draws, ...]

    def __call__(self, X: Array) -> Array:
        return np.stack([functions(X) for functions in self.outputs], axis=1)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, t, n_features, n)."""
        return np.stack([functions.gradient(X) for functions in self.outputs], axis=1)


class Relevance(NamedTuple):
    """Shares of the inputs in the variation of predictions."""

    mean: Array  # (d,)
    std: Array  # (d,), between what is believed in

    @staticmethod
    def choose_rows(n: int) -> slice:
        """Some of n rows, or all if they are few, to average over."""
        return thin(n, _RELEVANCE_ROWS)

    @classmethod
    def of_slopes(
        cls,
        X: Array,
        weight: Array,
        mean: Array,
        each: Array,
        belief: Array | None = None,
        *,
        owners: Owners,
        predict: Callable[[Array], Array],
    ) -> Relevance:
        """What the slopes of predictions say.

        They are those of the predictive mean (k, d), and of the mean by each of S things
        believed in (S, k, d), in shares `belief` (S,) or equal ones, at rows X (k, d) that count
        as their weights (k,) say. Where columns of X encode an input together, `predict` gives the
        predictive mean and those of each, (1 + S, k), at other rows.
        """
        squares = np.concatenate([mean[None], each]) ** 2
        share = weight / weight.sum()
        relevance = (share @ squares) * (share @ (X - share @ X) ** 2)  # (1 + S, d)
        shares = share_out(relevance, X, owners, predict, lambda changes: changes @ share)
        deviation = shares[1:] - shares[0]
        return cls(shares[0], np.sqrt(np.average(deviation**2, axis=0, weights=belief)))

    @classmethod
    def average(cls, outputs: Sequence[Relevance], counts: Array) -> Relevance:
        """Shares that are averaged over several outputs, which count (t,) as often."""
        means, stds = np.array(outputs).swapaxes(0, 1)
        share = counts / counts.sum()
        return cls(share @ means, np.sqrt(share**2 @ stds**2))


def share_out(
    relevance: Array,
    X: Array,
    owners: Owners,
    predict: Callable[[Array], Array],
    average: Callable[[Array], Array],
) -> Array:
    """Shares of the inputs in the variation of some predictions (p, d).

    From mean squared slopes, times the variance of the column, and of a category from half the mean
    squared change when it becomes that of another row, which is the same for a linear function.
    ``average`` makes these means (p,) of changes at rows X of what predictions are there.
    """
    if owners:
        relevance = relevance[:, find_first_columns(X.shape[1], owners)]
        before = predict(X)
        for j, swapped in _swap_categories(X, owners):
            relevance[:, j] = 0.5 * average((predict(swapped) - before) ** 2)
    total = relevance.sum(axis=1, keepdims=True)
    return np.divide(relevance, total, out=relevance, where=total > 0.0)


def _swap_categories(X: Array, owners: Owners) -> Iterator[tuple[int, Array]]:
    """Each input that is a category, and rows X in which it is that of other rows."""
    order = np.random.default_rng(0).permutation(len(X))
    for j in np.flatnonzero(np.bincount(owners, minlength=1) > 1).tolist():
        columns = np.array(owners) == j
        swapped = X.copy()
        swapped[:, columns] = X[np.ix_(order, np.flatnonzero(columns))]
        yield j, swapped


class KnownFunction(Protocol):
    """What is known of the function of one output, or of t of them."""

    @property
    def relevance(self) -> Relevance: ...

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) or (n, t, d) of the derivatives."""

    def draw_functions(self, n: int, rng: np.random.RandomState) -> Draws:
        """Functions from the posterior."""


class DescribesFunction:
    """Adds draws, gradients and relevance to a regressor whose posterior is a `KnownFunction`."""

    _posterior: Callable[[], Any]
    _check_inputs: Callable[[Any], Array]
    _pick: Callable[[Array], Array]
    _measured_attributes = frozenset({"feature_importances_", "feature_importances_std_"})

    def predict_gradient(self, X: Any) -> tuple[Array, Array]:
        """Predict the gradient of the latent function.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_features) or (n_samples, n_outputs, n_features)
            Of the derivatives, in units of y per unit of the input: the gradient of the mean that
            `predict` returns with ``include_noise=False``.
        std : ndarray of the same shape
            Standard deviation of each. Infinite where a kernel is believed in whose functions have
            no gradient, such as Matern-1/2. Both are NaN for a category.

        Examples
        --------
        >>> import numpy as np
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = model.predict_gradient([[0.0]])
        >>> mean.round(2)
        array([[1.]])
        """
        X = self._check_complete(X, "predict_gradient needs rows")
        with single_blas_thread:
            mean, variance = self._posterior().measure_gradient(X)
        return self._pick(mean), np.sqrt(self._pick(variance))

    def sample_function(self, n: Any = 1, random_state: Any = 0) -> Draws:
        """Draw functions from the posterior.

        Parameters
        ----------
        n : int, default=1
            Number of functions.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.

        Returns
        -------
        functions : callable
            ``functions(X)``, with X of shape (n_samples, n_features), gives the values of all of
            them, (n_samples, n), without noise and on the scale of y; of several outputs
            (n_samples, n_outputs, n). A function has the same value at the same place in every
            call. It knows the rows of the moment when it was drawn. ``functions.gradient(X)``
            gives the derivatives, (n_samples, n_features, n) or (n_samples, n_outputs,
            n_features, n); NaN for a category.

        Raises
        ------
        TypeError
            If VBGPRegressor or, unless `gamma` is 1, SVBSSGPRegressor has its rows on Dask's
            workers.
        ValueError
            If `n` is no positive number, or the kernel has a part of which functions cannot be
            drawn: :class:`~skvbgp.kernels.White`, :class:`~skvbgp.kernels.Wiener` or
            :class:`~skvbgp.kernels.IntegratedOU`, which VBKSRegressor has for a series by default,
            or an isotropic :class:`~skvbgp.kernels.Periodic` of several inputs. The functions
            refuse what `predict` refuses, and missing entries (NaN).

        Notes
        -----
        Means and variances are those of `predict` with ``include_noise=False``, and those of
        gradients are those of `predict_gradient`. Where predictions are made from a row's nearest
        neighbours, functions jump a little where these change, as predictions do, and where they
        are made from its block, by up to a deviation or two where blocks meet.

        Examples
        --------
        >>> import numpy as np
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> functions = model.sample_function(5)
        >>> functions(np.linspace(-4.0, 4.0, 100)[:, None]).shape
        (100, 5)
        """
        check_is_fitted(self)
        n, rng = as_count(n, "n", least=1), check_random_state(random_state)
        functions = self._posterior().draw_functions(n, rng)
        reader = copy(self)
        vars(reader).pop("_state")
        return ReadDraws(functions, reader)

    def _check_complete(self, X: Any, need: str) -> Array:
        """X as the posterior takes it, or ValueError where entries are missing."""
        X = self._check_inputs(X)
        if np.isnan(X).any():
            raise ValueError(f"{need} without missing entries (NaN).")
        return X

    @property
    def feature_importances_(self) -> Array:
        """Shares of the inputs in the variation of predictions, (n_features,)."""
        check_is_fitted(self)
        return self._posterior().relevance.mean.copy()

    @property
    def feature_importances_std_(self) -> Array:
        """Standard deviations of `feature_importances_` between what is believed in."""
        check_is_fitted(self)
        return self._posterior().relevance.std.copy()


@dataclass(frozen=True)
class ReadDraws:
    """Functions from the posterior of a regressor, as ``sample_function`` draws them.

    Calling it with rows X as the regressor takes them, of shape (n_samples, n_features), gives the
    values of all functions, on the scale of y. Each is the same function in every call.
    """

    functions: Draws
    reader: DescribesFunction  # the regressor without its state

    def __call__(self, X: Any) -> Array:
        return self.functions(self._read(X))

    def gradient(self, X: Any) -> Array:
        """Derivatives of all functions, in units of y over those of each input."""
        slopes = np.moveaxis(self.functions.gradient(self._read(X)), -1, 0)
        return np.moveaxis(self.reader._pick(slopes), 0, -1)

    def _read(self, X: Any) -> Array:
        return self.reader._check_complete(X, "Functions need rows")
