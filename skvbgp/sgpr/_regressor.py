"""The regressors: their parameters, and the structure of the noise of each."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from skvbgp.base import (
    FORGETTING,
    FORGETTING_OR_WINDOW,
    JOINT_OUTPUTS,
    Interval,
    StrOptions,
    documented_like,
    keep,
)
from skvbgp.sgpr._estimator import (
    BLOCKS,
    COMMON,
    NOISE_KERNEL,
    BlockRegressor,
    IndependentRegressor,
)
from skvbgp.sgpr._learner import SparseLearner
from skvbgp.sgpr._noise import Diagonal, White
from skvbgp.sgpr._spread import SpreadRows


class VBDTCRegressor(IndependentRegressor):
    """Variational Bayesian sparse Gaussian process regression with white noise (VBDTC).

    Observations are f(x) plus independent Gaussian noise of one variance. This is the
    member of the family to start from: it is the cheapest, and its predictive moments
    have a closed form [Yu2019]_.

    X may have missing entries (NaN), in training and in prediction: rows that have them have more
    noise, by slopes that are learned.

    Parameters
    ----------
    n_inducing : int, default=500
        Number of inducing inputs: more are more accurate, at a cost that grows with their
        square. At most the number of distinct rows is used.

    inducing_inputs : array-like of shape (n_inducing, n_features), default=None
        Starting inducing inputs, in the space of X, whose number takes the place of `n_inducing`;
        a stream adds none to them. None chooses them by k-means.

    categorical_features : "from_dtype" or array-like, default=None
        Inputs that are categories: their names, indices, a mask, or "from_dtype" for the columns
        of categorical type of a DataFrame. Any two categories of an input are equally far from
        each other, by one over its length scale. Missing values are a category; what `fit` has not
        seen is as far from all others. A stream, and `warm_start`, keeps the categories of its
        first fit. None is no input.

    output_covariance : "learned" or None, default=None
        How several outputs go together. None is a model for each. "learned" is one model in which
        they learn from each other: they share length scales and, relative to their spreads, the
        signal, and their covariance is learned, as is a noise variance of each. Rows are then the
        values that were observed, in memory, also where numbers of rows are compared; inducing
        inputs are those of all outputs, and one that is given is one of each. `signal_std`,
        `noise_variance` and `hyperparameter_variance` are relative to the spread of each output.
        Draws are joint in the outputs; ``return_cov`` and `log_predictive_density` take each by
        itself. What `loo_predict` leaves out is one value, given the others of its row. An output
        that values left out say is better predicted alone has a model of its own
        (`learns_from_others_`); the others still learn from it. Of one output it changes nothing.

    length_scale : float or array-like of shape (n_features,), default=None
        Starting length scales, 1 / nu, in the units of X. None is half the spread of
        each input times the square root of their number, and twice as much where `prior_variance`
        is, by default, one over their number.

    signal_std : float, default=None
        Starting mean alpha of the signal's standard deviation, on the scale of y. None is
        the standard deviation of y.

    noise_variance : float, default=None
        Starting variance sigma_n^2 of the white noise, on the squared scale of y. None is
        a tenth of the variance of y.

    hyperparameter_variance : float, default=None
        Starting variances of q: xi of every inverse length scale (squared units of 1 / X)
        and beta of the signal's standard deviation (squared scale of y). None is a
        hundredth of the squared starting means. Where "collapsed" takes draws of q,
        variances are found after the rest, whatever they start from.

    prior_mean : float or array-like of shape (n_features + 1,), default=0.0
        Prior means of the inverse length scales and, last, of the signal's standard
        deviation, for inputs and targets of unit spread.

    prior_variance : float or array-like of shape (n_features + 1,), default=None
        Prior variances of the same. None is 4 but, of more than 20 inputs and up to 500 rows, one
        over the number of inputs for the inverse length scales.

    solver : {"auto", "exact", "collapsed", "stochastic"}, default="auto"
        "exact" takes every row as an inducing input, the exact posterior of the function
        for each of eight draws of the hyperparameters, and runs L-BFGS on q(theta) and the
        noise (a noise kernel has inducing inputs at the centres of a quarter of the rows);
        "collapsed" plugs in the optimal q(s) and runs L-BFGS on all rows; "stochastic"
        takes natural-gradient steps on q(s) and Adam steps on everything else, from
        mini-batches. "auto" is "exact" for at most 500 rows (and `n_inducing`), unless the
        inducing inputs or the kind of expectations are chosen or nothing is to be learned, and
        "collapsed" up to 2,000 rows.

    psi : {"auto", "closed_form", "sampled"}, default="auto"
        How expectations over the length scales are taken: in closed form, at the cost of
        n_inducing^2 / 2 exponentials for each row (and as many for each pair of rows of a
        block), or over draws: new ones in every stochastic step, which is unbiased, and
        fixed ones elsewhere. "auto" picks by cost; its stochastic steps always draw. "closed_form"
        is not for VBPIC and VBPITC with categorical inputs.

    learn_hyperparameters : bool, default=True
        False keeps q(theta), the noise and the inducing inputs at their start and only
        solves for q(s).

    max_iter : int, default=None
        Largest number of passes over the data (of L-BFGS iterations for "exact" and "collapsed").
        None is 200 iterations (100 for "exact" and for "collapsed" with draws; 50 for "exact"
        VBPIC and VBPITC, and 40 and 10 if they are "collapsed"), or as many passes as visit about
        a million rows (300,000 for VBPIC, 450,000 for VBPITC), but at least two.

    batch_size : int, default=2048
        Rows in a mini-batch.

    learning_rate : float, default=0.03
        First step size of Adam (VBPITC's is twice as large); it falls to zero along a cosine.

    tol : float, default=1e-5
        Stop when the lower bound rises by less than this share of itself, from one
        iteration of L-BFGS or from one average over 100 steps ("stochastic") to the next.

    normalize_y : bool, default=True
        Whether to subtract the mean of y, which is divided by its spread in either case. Everything
        that is returned is on y's own scale.

    forgetting : float, default=1.0
        What a row of a stream counts, as a share, when one more has come, between 0 and 1: after a
        later ones it counts `forgetting ** a` times, and none after the function has changed
        abruptly. 1 forgets nothing. In `fit` all rows count alike. Where hyperparameters are
        learned, they are learned again from the rows that are remembered; where `fit` has more than
        16,384, or a row only counts a twentieth after more, they are moved by some steps on new
        rows instead. Predictions know sums over rows, from which none can be taken away: there is
        no window of the newest ones, as :class:`~skvbgp.gp.VBGPRegressor` has it.

    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the fit before. Starting values, priors
        and the noise kernel are then those of that fit, too.

    random_state : int, RandomState instance or None, default=None
        Determines k-means, mini-batches and draws.

    n_jobs : int, default=None
        Workers of the pass over all rows that ends a fit. It changes no result.

    Attributes
    ----------
    inverse_length_scale_mean_ : ndarray of shape (n_features,)
        Means nu of q(Lambda), in units of 1 / X.

    inverse_length_scale_var_ : ndarray of shape (n_features,)
        Variances xi of q(Lambda).

    signal_std_mean_, signal_std_var_ : float
        Mean alpha and variance beta of q(sigma_f); sigma_f is on the scale of y.

    noise_variance_ : float
        sigma_n^2, on the squared scale of y.

    inducing_inputs_ : ndarray of shape (n_inducing, n_features)
        Inducing inputs, in the space of X. With solver="exact" these are the rows or, if there
        is a noise kernel, the centres of a quarter of them, which belong to the noise alone. With
        categories, in columns for the numbers, then for each category, then for unknown ones.

    lower_bound_ : float
        Variational lower bound on log p(y), with every constant. Where expectations are over draws,
        as by default beyond some tens of inducing inputs, an estimate of it: the user guide says
        how good.

    lower_bounds_ : list of float
        The bound after each pass (an average over mini-batches for "stochastic"), and after each
        `partial_fit`, of which the last 10,000 are kept.

    n_iter_ : int
        Number of passes.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`, but for those of weight 0.

    n_features_in_ : int
        Number of inputs.

    n_outputs_ : int
        Number of outputs. Of several ones, every attribute that describes a model is an array, of
        numbers, or a list with one entry for each, and `n_iter_` is the sum.

    output_covariance_ : ndarray of shape (n_outputs, n_outputs)
        Prior covariance of the outputs' functions at one place, on the squared scale of y.
        Diagonal where `output_covariance` is None. Where it is "learned", the model is one: of what
        describes it, the signal's moments and `noise_variance_` have an entry for each output,
        `inducing_inputs_` have further columns that say how much of each output they are, and the
        rest is as of one output.

    learns_from_others_ : ndarray of shape (n_outputs,)
        Whether each output is predicted by the model of all of them. False where
        `output_covariance` is None, and where a model of its own is better. `noise_variance_` and
        importances are of whoever predicts an output, `n_iter_` counts the passes of all models
        that were tried, and the other attributes describe the model of all.

    feature_importances_ : ndarray of shape (n_features,)
        Mean squared derivative of the mean of the function, over at most 1,000 training rows, times
        the variance of the input; with a sum of one, or all zero where predictions are constant. Of
        several outputs, the average. It is computed when it is asked for.

    feature_importances_std_ : ndarray of shape (n_features,)
        Standard deviation of these shares between draws of the hyperparameters.

    References
    ----------
    .. [Yu2019] H. Yu, T. N. Hoang, B. K. H. Low and P. Jaillet, "Stochastic variational
       inference for Bayesian sparse Gaussian process regression", IJCNN 2019,
       arXiv:1711.00221.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import VBDTCRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VBDTCRegressor(n_inducing=20, random_state=0).fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> mean.shape, std.shape
    ((42,), (42,))
    """

    _parameter_constraints = COMMON | FORGETTING | JOINT_OUTPUTS

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        output_covariance: str | None = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = None,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        return self._make_learner(structure=White())


@documented_like(VBDTCRegressor)
class VBFITCRegressor(IndependentRegressor):
    """Variational Bayesian sparse Gaussian process with input-dependent noise (VBFITC).

    The noise of each row is independent; its variance is sigma_n^2 plus what a noise
    kernel cannot explain from the inducing inputs, so that it grows away from them
    [Yu2019]_.

    X may have missing entries (NaN), in training and in prediction: rows that have them have the
    noise of places far from the inducing inputs, and more, by slopes that are learned.

    Parameters
    ----------
    noise_kernel : "auto", kernel or None, default=None
        Kernel k^eps of the noise's residual, of :mod:`skvbgp.kernels` or scikit-learn,
        over the inputs as they are given; a kernel of unit variance gets a learned
        amplitude. Its amplitude is on the squared scale of y if `noise_variance` is given,
        otherwise relative to the variance of y. None is a squared exponential with one length
        scale per input, and so is "auto": all kernels that VBPIC tries are the same noise if it is
        independent. With ``output_covariance="learned"`` it cannot be given: there is a process of
        the default for each output.

    Attributes
    ----------
    noise_kernel_ : kernel
        Learned noise kernel, on the squared scale of y. With ``output_covariance="learned"`` it is
        relative to spreads, and has the further columns of `inducing_inputs_`, too.
    """

    _parameter_constraints = COMMON | FORGETTING | JOINT_OUTPUTS | NOISE_KERNEL

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        noise_kernel: Any = None,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        output_covariance: str | None = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = None,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        return self._make_learner(structure=Diagonal(self.noise_kernel))


@documented_like(VBFITCRegressor, without=["output_covariance_", "learns_from_others_"])
class VBPITCRegressor(BlockRegressor):
    """Variational Bayesian sparse Gaussian process with noise correlated in blocks (VBPITC).

    The rows are divided into blocks by location. The noise of a block is correlated by the
    residual of a noise kernel; new rows are predicted through the inducing inputs alone
    [Yu2019]_. See :class:`VBPICRegressor`, which uses the block of a new row as well.

    X may have missing entries (NaN), in training and in prediction: rows that have them are in the
    blocks of their means, and have more noise, by slopes that are learned before.

    Parameters
    ----------
    noise_kernel : "auto", kernel or None, default=None
        Kernel k^eps of the noise's residual, of :mod:`skvbgp.kernels` or scikit-learn,
        over the inputs as they are given; a kernel of unit variance gets a learned
        amplitude. Its amplitude is on the squared scale of y if `noise_variance` is given,
        otherwise relative to the variance of y. None is a squared exponential with one length
        scale per input. "auto" takes the one that predicts rows best from the rest of their block,
        among Matern kernels, the rational quadratic, the squared exponential, and products and sums
        of two, if that beats None by more than chance; `noise_variance_` is then as large as costs
        known rows next to nothing. It is None with fewer than 32 rows, and with
        `learn_hyperparameters=False`. `warm_start` keeps the kernel that has been chosen,
        `partial_fit` until it trains again. As predictions do not know the block, the model is
        trained with None, too, which stays unless left-out rows are predicted worse with it.

    n_blocks : "auto" or int, default="auto"
        Number of blocks that the rows of one call are divided into, by location.
        "auto" makes blocks of about 500 rows, and makes them again in a stream. VBPITC, which
        predicts without them, makes blocks of about 100 where it learns from more than 2,000 rows.

    n_samples : int, default=8
        Has no effect here, with any solver: it is the number of draws from which
        :class:`VBPICRegressor` predicts.

    forgetting : float or int, default=1.0
        How a stream forgets. Up to 1, what a row counts, as a share, when one more has come; rows
        that count less than a hundredth are left out, and after an abrupt change of the function
        all from before. A whole number from 2 on is how many of the newest rows are known, all of
        which count alike. With either, `partial_fit` is a fit to the rows that count, which are
        divided into blocks again, as long as it may take; `warm_start` has it begin where the call
        before has ended. In `fit` all rows count alike. 1 forgets nothing.

    Attributes
    ----------
    noise_kernel_ : kernel
        Learned noise kernel, on the squared scale of y.
    """

    _parameter_constraints = COMMON | FORGETTING_OR_WINDOW | NOISE_KERNEL | BLOCKS

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        noise_kernel: Any = None,
        n_blocks: int | str = "auto",
        n_samples: int = 8,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = None,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        return self._make_block_learner(local=False)


@documented_like(VBPITCRegressor)
class VBPICRegressor(BlockRegressor):
    """Variational Bayesian sparse Gaussian process with local blocks (VBPIC).

    The rows are divided into blocks by location. Across blocks the inducing inputs carry
    the information; within a block rows are correlated directly, through the Gaussian
    process and through a noise kernel's residual. A new row is predicted from the
    inducing inputs and from the data of its own block, which are kept [Yu2019]_.

    `predict` gives the distribution of the *observation*: the noise of a new row is
    correlated with that of its block, so its conditional mean is part of the prediction.
    With ``include_noise=False`` it is that of the latent function alone, whose standard
    deviation may be larger: rows of the block tell the sum of the two better than either.
    `sample_function`, `predict_gradient` and `feature_importances_` are of that function, too.

    X may have missing entries (NaN), in training and in prediction: rows that have them are in the
    blocks of their means, and have more noise, by slopes that are learned before.

    Parameters
    ----------
    n_inducing : "auto" or int, default="auto"
        Number of inducing inputs, at a cost that grows with its square. "auto" is one for 16 rows,
        between 32 and 500: where most rows are inducing inputs, what these leave open says little
        of new rows. At most the number of distinct rows is used.

    noise_kernel : "auto", kernel or None, default="auto"
        Kernel k^eps of the noise's residual, of :mod:`skvbgp.kernels` or scikit-learn,
        over the inputs as they are given; a kernel of unit variance gets a learned
        amplitude. Its amplitude is on the squared scale of y if `noise_variance` is given,
        otherwise relative to the variance of y. None is a squared exponential with one length
        scale per input. "auto" takes the one that predicts rows best from the rest of their block,
        among Matern kernels, the rational quadratic, the squared exponential, and products and sums
        of two, if that beats None by more than chance; `noise_variance_` is then as large as costs
        known rows next to nothing. It is None with fewer than 32 rows, and with
        `learn_hyperparameters=False`. `warm_start` keeps the kernel that has been chosen,
        `partial_fit` until it trains again.

    n_samples : int, default=8
        Draws of the hyperparameters in prediction. May be changed after `fit`.
    """

    _parameter_constraints = VBPITCRegressor._parameter_constraints | {
        "n_inducing": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})]
    }

    def __init__(
        self,
        n_inducing: int | str = "auto",
        *,
        noise_kernel: Any = "auto",
        n_blocks: int | str = "auto",
        n_samples: int = 8,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = None,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    @property
    def _keeps_on_workers(self) -> bool:
        return isinstance(getattr(self._state, "blocks", None), SpreadRows)

    def _learner(self) -> SparseLearner:
        return self._make_block_learner(local=True)
