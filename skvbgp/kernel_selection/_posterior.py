"""What a fitted kernel, and an average of several, says about new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from skvbgp._core.blockwise import in_tiles
from skvbgp._core.draws import draw_normal
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, stack_pairs
from skvbgp._core.mixture import NormalMixture, average_moments
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.pickling import PickledByFields
from skvbgp.base import Relevance, Targets, find_known, invert_rest
from skvbgp.kernel_selection._bound import Prior, Statistics, total_statistics
from skvbgp.kernel_selection._categories import ColumnsKernel
from skvbgp.kernel_selection._paths import FunctionDraws, Paths, measure_slopes
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernel_selection._targets import TransformedMixture
from skvbgp.kernels import Kernel
from skvbgp.kernels._features import share_functions


@dataclass(frozen=True)
class KernelModel(PickledByFields):
    """Sparse Gaussian process with one of the kernels, as `VBKSRegressor` has fitted it.

    Attributes
    ----------
    name : str
        Name of the kernel.
    kernel : Kernel
        With its learned hyperparameters (their means exp(E[log]) if q(theta) is Gaussian), in
        units of the inputs, and of the variance of y if `normalize_y`.
    noise_variance : float
        On the squared scale of y, or of the logarithm of y + c.
    transform : {"identity", "log"}
        What this Gaussian process models: y, or log(y + c).
    shift : float
        c, for a logarithm.
    inducing_inputs : ndarray of shape (n_inducing, n_features)
        In the space of X. With `categorical_features`, they and the X of `predict` have the columns
        that these are encoded in.
    """

    name: str
    _kernel: ColumnsKernel  # at its learned hyperparameters
    noise_variance: float
    inducing_inputs: Array
    _points: Array  # (S, p + 1) draws of (theta, log s2), or the one point
    _statistics: Statistics
    _frame: Frame

    @property
    def kernel(self) -> Kernel:
        return self._kernel.of_inputs

    @property
    def transform(self) -> str:
        return self._frame.target.transform

    @property
    def shift(self) -> float:
        return float(getattr(self._frame.target, "shift", 0.0))

    def _fade(self, share: float) -> KernelModel:
        """The model of the same rows, which count less by a factor."""
        return replace(self, _statistics=self._statistics.faded(share))

    @cached_property
    def _q(self) -> WhitenedGaussian:
        return self._statistics.optimal_q()

    @cached_property
    def _priors(self) -> list[Prior]:
        Z = self.inducing_inputs - self._frame.origin
        return [Prior(self._kernel, x, Z) for x in self._points]

    def predict(
        self, X: Array, return_std: bool = False, *, include_noise: bool = True
    ) -> Array | tuple[Array, Array]:
        """Predict with this kernel alone.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Inputs to predict at.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            On the scale of y.
        std : ndarray of shape (n_samples,)
            Only returned if `return_std` is True.
        """
        mean, variance = self._moments(np.asarray(X, dtype=np.float64), include_noise)
        return (mean, np.sqrt(variance)) if return_std else mean

    @property
    def _bound(self) -> float:
        """L_i without KL(q(theta) || p(theta)), of the scaled target."""
        return self._statistics.bound(self._q)

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Appendix D.2 of [Teng2020]_: mean and variance of every row, on the scale of y."""
        each = self._moments_by_draw(X, include_noise)
        return average_moments(*self._frame.target.moments(*each), axis=1)

    def _means(self, X: Array) -> Array:
        """Means (n, S) of every row's y, one column for each draw."""
        return self._frame.target.moments(*self._moments_by_draw(X, include_noise=False))[0]

    def _components(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Means and variances (n, S) of every row's y or log y, one column for each draw."""
        return self._frame.target.unscaled(*self._moments_by_draw(X, include_noise))

    def _moments_by_draw(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Means and variances (n, S) of the scaled target, by each draw of theta."""
        return self._by_draw(partial(self._of_draw, include_noise=include_noise), X)

    def _by_draw(
        self, function: Callable[[Prior, Array], tuple[Array, Array]], X: Array
    ) -> tuple[Array, Array]:
        """What a function says of centred rows by each draw of theta, (n, S, ...)."""
        # before the threads of the tiles need them
        self._priors, self._q.covariance, self._q.mean  # noqa: B018
        return in_tiles(
            lambda X: stack_pairs([function(p, X) for p in self._priors], axis=1),
            self._frame.centre(X),
        )

    def _of_draw(self, prior: Prior, X: Array, *, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance (n,) of the scaled target."""
        A = prior.whiten(X)  # (n, m)
        reduction = self._q.covariance.copy()
        reduction.flat[:: len(reduction) + 1] -= 1.0
        variance = prior.kernel.diag(X) + np.einsum("ij,ij->i", A @ reduction, A)
        noise = prior.noise if include_noise else 0.0
        return A @ self._q.mean, np.maximum(variance, 0.0) + noise

    def _leave_out(self, X: Array, y: Targets) -> tuple[Array, Array]:
        """Mean and variance of y at known rows, each given all the others, on the scale of y.

        Without the known noise of the row itself.
        """
        target, priors = self._frame.target, self._priors
        noise = np.array([prior.noise for prior in priors])  # (S,)

        def tile(rows: Index) -> tuple[Array, Array]:
            inputs, given = self._frame.scale(X[rows], y[rows])
            A = np.stack([prior.whiten(inputs) for prior in priors], axis=1)  # (n, S, m)
            known = 0.0 if given.variance is None else given.variance[:, None]
            root = np.sqrt(given.counts[:, None] / (len(priors) * (noise + known)))
            mean, variance = leave_out(self._q, A, given.y, root)
            diagonal = np.column_stack([prior.kernel.diag(inputs) for prior in priors])
            variance = np.maximum(diagonal - np.sum(A**2, axis=2) + variance, 0.0) + noise
            return average_moments(*target.moments(mean, variance), axis=1)

        self._q.precision_factor_inv  # noqa: B018  before the threads of the tiles need it
        return in_tiles(tile, np.arange(len(X)))

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean and covariance of all rows, on the scale of y."""
        joint, every = self._frame.target.joint, range(len(self._points))
        return mix_joint([joint(*self._joint_of_draw(s, X, include_noise)) for s in every])

    def _joint_of_draw(self, s: int, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean and covariance of all rows' scaled target, by one draw of theta."""
        prior = self._priors[s]
        X = self._frame.centre(X)
        A = prior.whiten(X)
        cov = prior.kernel(X) - A @ A.T + A @ self._q.covariance @ A.T
        if include_noise:
            cov.flat[:: len(cov) + 1] += prior.noise
        return A @ self._q.mean, cov

    def _sample(
        self, s: int, X: Array, n: int, include_noise: bool, rng: np.random.RandomState
    ) -> Array:
        """Draws (rows, n) of y by one draw of theta: normal ones of its transform."""
        target = self._frame.target
        joint = target.unscaled(*self._joint_of_draw(s, X, include_noise))
        return target.inverse(draw_normal(*joint, n, rng))

    def _slopes(self, X: Array) -> tuple[Array, Array]:
        """Means and variances (n, S, d) of the derivatives of y, by each draw of theta."""

        def of_draw(prior: Prior, X: Array) -> tuple[Array, Array]:
            f = self._of_draw(prior, X, include_noise=False)
            return self._frame.target.slope_moments(f, *measure_slopes(prior, self._q, X))

        return self._by_draw(of_draw, X)


def add_rows(X: Array, y: Targets, model: KernelModel) -> KernelModel:
    """The model after more rows."""
    Z = model.inducing_inputs - model._frame.origin
    rows = total_statistics(X, y, model._frame, Z, model._kernel, model._points)
    return replace(model, _statistics=model._statistics.plus(rows))


class KernelAverage(NamedTuple):
    """The average of some kernels' models, eq. (15)."""

    models: tuple[KernelModel, ...]
    weights: Array
    rows: tuple[Array, Targets] | None  # that the models have been made of, while they are few

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return mix_moments([m._moments(X, include_noise) for m in self.models], self.weights)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        if self.rows is not None:
            find_known(X, targets, *self.rows)
        return mix_moments([m._leave_out(X, targets) for m in self.models], self.weights)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture | TransformedMixture:
        """One component for each kernel and draw of its hyperparameters."""
        parts = [m._components(X, include_noise) for m in self.models]
        means, variances = zip(*parts, strict=True)
        targets = [m._frame.target for m, _ in self._components]
        mean, variance = np.hstack(means), np.hstack(variances)
        return TransformedMixture.of(targets, mean, variance, self._component_weights)

    def sample(self, X: Array, n: int, include_noise: bool, rng: np.random.RandomState) -> Array:
        """Draws (rows, n) of y at all rows: of a component each, joint ones of its transform."""
        chosen = rng.choice(len(self._components), n, p=self._component_weights)
        draws = np.empty((len(X), n))
        for k in np.unique(chosen):
            model, s = self._components[k]
            its = np.flatnonzero(chosen == k)
            draws[:, its] = model._sample(s, X, len(its), include_noise, rng)
        return draws

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the derivatives, on the scale of y."""
        belief, means, variances = self._slopes(X)
        mean = np.einsum("k,nkd->nd", belief, means)
        return mean, np.einsum("k,nkd->nd", belief, variances + (means - mean[:, None]) ** 2)

    def _slopes(self, X: Array) -> tuple[Array, Array, Array]:
        """Shares of what is believed in, (K,), and what each says of derivatives, (n, K, d)."""
        weights = self._component_weights
        believed = [m for m, weight in zip(self.models, self.weights, strict=True) if weight > 0.0]
        means, variances = zip(*(m._slopes(X) for m in believed), strict=True)
        belief = weights[weights > 0.0]
        return belief, np.concatenate(means, axis=1), np.concatenate(variances, axis=1)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, over rows that are kept.

        Or else over the inducing inputs of the kernel that is believed in most.
        """
        if self.rows is None:
            X = self.models[0].inducing_inputs
            weight = np.ones(len(X))
        else:
            X, weight = self.rows[0], self.rows[1].counts
        some = Relevance.choose_rows(len(X))
        belief, each, _ = self._slopes(X[some])
        each = np.swapaxes(each, 0, 1)  # (K, k, d)
        mean = np.einsum("k,knd->nd", belief, each)
        slopes = mean, each, belief
        owners = self.models[0]._kernel.owners
        return Relevance.of_slopes(
            X[some], weight[some], *slopes, owners=owners, predict=self._predict_each
        )

    def _predict_each(self, X: Array) -> Array:
        """Means of y (1 + K, n): all that is believed in, and each of it."""
        believed = self._component_weights > 0.0
        each = np.hstack([m._means(X) for m in self.models]).T[believed]
        return np.vstack([self._component_weights[believed] @ each, each])

    def draw_functions(self, n: int, rng: np.random.RandomState) -> FunctionDraws:
        """Functions n from the posterior: of a kernel as often as it is believed in."""
        sets = []
        with single_blas_thread:
            for k, members in share_functions(n, self._component_weights, rng):
                model, s = self._components[k]
                known = model._frame, model._priors[s], model._q
                sets.append(Paths.draw(members, *known, rng))
        return FunctionDraws(tuple(sets))

    @property
    def _components(self) -> list[tuple[KernelModel, int]]:
        """Every kernel with each of the draws of its hyperparameters, K in all."""
        return [(model, s) for model in self.models for s in range(len(model._points))]

    @property
    def _component_weights(self) -> Array:
        """Their beliefs (K,)."""
        draws = [len(model._points) for model in self.models]
        return np.repeat(self.weights / np.sum(self.weights) / draws, draws)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return mix_joint([m._joint(X, include_noise) for m in self.models], self.weights)


def mix_moments(parts: list[tuple[Array, Array]], weights: Array) -> tuple[Array, Array]:
    """Eq. (15): mean and variance of a mixture of Gaussians, row by row."""
    means, variances = stack_pairs(parts, 0)  # (K, n)
    mean = np.average(means, axis=0, weights=weights)
    return mean, np.average(variances + (means - mean) ** 2, axis=0, weights=weights)


def mix_joint(
    parts: list[tuple[Array, Array]], weights: Array | None = None
) -> tuple[Array, Array]:
    """Mean and covariance of a mixture of joint Gaussians."""
    means, covariances = stack_pairs(parts, 0)
    mean = np.average(means, axis=0, weights=weights)
    shifts = means - mean  # (S, n)
    covariances += shifts[:, :, None] * shifts[:, None, :]
    return mean, np.average(covariances, axis=0, weights=weights)


def leave_out(q: WhitenedGaussian, A: Array, y: Array, root: Array) -> tuple[Array, Array]:
    """Means and variances (n, S) of a_s' u at rows, by q(u) without each: :ref:`kernel-left-out`.

    To the precision and the shift of q(u) a row has added, over the S draws of theta,

        sum_s r_s^2 a_s a_s',   sum_s r_s^2 y a_s,     r_s^2 = w / (S (s2_s + v)),

    with its weight w and the known variance v of its noise. They are subtracted. With F the rows
    r_s a_s', what is asked for is F u alone, whose covariance G = F P^-1 F' becomes (I - G)^-1 G
    (Woodbury). A (n, S, m) holds the rows a_s', ``root`` (n, S) the r_s. A row that says more than
    q knows is a `RowSaysMoreError`.
    """
    scaled = root[:, :, None] * (A @ q.precision_factor_inv.T)  # (n, S, m)
    G = scaled @ scaled.mT  # (n, S, S)
    half = invert_rest(np.eye(G.shape[1]) - G) @ G
    covariance = G + half.mT @ half  # without cancellation
    fitted = A @ q.mean  # (n, S)
    residual = root * (y[:, None] - fitted)
    mean = fitted - (covariance @ residual[:, :, None])[:, :, 0] / root
    return mean, np.diagonal(covariance, axis1=1, axis2=2) / root**2
