"""Docstrings: the parameters that the regressor and the classifier share are written once."""

import inspect
from collections.abc import Callable

_COMMON = """
    n_mean_basis : int, default=2000
        Largest number of points of the mean's basis. The cost of a step is linear in it.

    n_cov_basis : int, default=200
        Largest number of points of the covariance's basis. The cost of a step is cubic in it.

    parametrization : {{"orthogonal", "hybrid", "decoupled"}}, default="orthogonal"
        "hybrid" has a conventional sparse Gaussian process on the covariance's basis, with
        natural gradients, and adds the mean's basis to its mean. "orthogonal" is the same
        family in better coordinates: the mean's basis acts on what the covariance's basis
        cannot express [Salimbeni2018]_. "decoupled" shares nothing between the two and is
        trained by Adam alone.

    kernel : kernel, default=None
        Prior kernel, of :mod:`skvbgp.kernels` or scikit-learn, over the inputs as they are
        given{kernel_scale}. None is a squared
        exponential with one length scale per input, which have a weak prior around the
        median distance of the first rows. Training starts from the hyperparameters that
        suit an exact Gaussian process of up to 512 rows best; for a kernel that is given,
        the search for them begins at its own.

    generalized_length_scales : bool, default=True
        Whether each basis point has a learned multiplier of the length scales. Only for
        the default kernel.

    basis_growth : int, default=128
        Largest number of points that a mini-batch (a call of `partial_fit`) adds to each
        basis, until they have their sizes. New points are rows of it.
{likelihood}
    learn_hyperparameters : bool, default=True
        False keeps the kernel as it is given (or at the median distance), the noise and
        the basis points at their start, and only learns the coefficients of the mean and
        the covariance.

    max_iter : int, default=None
        Largest number of passes over the data. None is as many as visit about a million
        rows, but at least two.

    batch_size : int, default=1024
        Rows in a mini-batch.

    learning_rate : float, default=0.05
        First step size of Adam. It falls to zero along a cosine, within each call.

    tol : float, default=1e-5
        Stop when the lower bound rises by less than this share of itself from one average
        over 100 steps to the next.
{normalize_y}
    warm_start : bool, default=False
        Whether `fit` starts from the result of the fit before, whose kernel, likelihood
        and parametrization it then keeps.

    random_state : int, RandomState instance or None, default=None
        Determines mini-batches and basis points.

    n_jobs : int, default=None
        {n_jobs} It changes no result.
"""

_LIKELIHOOD = """
    likelihood : {"gaussian", "student_t", "poisson"}, default="gaussian"
        Distribution of y given the latent function f: Gaussian noise; noise of Student's
        distribution with four degrees of freedom, against outliers; or counts, of which f
        is the logarithm of the rate.
"""

_NORMALIZE_Y = """
    normalize_y : bool, default=True
        Whether to work with y of zero mean and unit variance, for Student's likelihood after
        outliers have been cut off. Everything that is returned is on y's own scale. Counts
        are never normalised.
"""

_ATTRIBUTES = """
    Attributes
    ----------{classes}
    kernel_ : {one}kernel
        Learned prior kernel{kernel_unit}.

    mean_basis_ : {one}ndarray of shape (n_mean_basis, n_features)
        Points of the mean's basis, in the space of X.

    cov_basis_ : {one}ndarray of shape (n_cov_basis, n_features)
        Points of the covariance's basis, in the space of X.
{noise}
    lower_bound_ : {one}float
        Last of `lower_bounds_`.

    lower_bounds_ : {one}list of float
        Estimates of the variational lower bound on log p(y), with every constant: one for
        each pass of the last fit, averaged over its mini-batches, and one for each later
        `partial_fit`.

    n_iter_ : int
        Number of passes of the last fit{n_iter}.

    n_samples_seen_ : int
        Rows of `fit` and of every later `partial_fit`.

    n_features_in_ : int
        Number of inputs.
"""

_NOISE = """
    noise_variance_ : float
        Variance of the noise, on the squared scale of y. Not with ``likelihood="poisson"``.
"""

_CLASSES = """
    classes_ : ndarray of shape (n_classes,)
        Class labels.
"""

_REFERENCES = """
    References
    ----------
    .. [Cheng2017] C.-A. Cheng and B. Boots, "Variational inference for Gaussian process
       models with linear complexity", NIPS 2017, arXiv:1711.10127.

    .. [Salimbeni2018] H. Salimbeni, C.-A. Cheng, B. Boots and M. Deisenroth, "Orthogonally
       decoupled variational Gaussian processes", NeurIPS 2018, arXiv:1809.08820.
"""

_REGRESSION_EXAMPLE = """
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvbgp import DecoupledGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DecoupledGPRegressor(n_cov_basis=20, max_iter=50, random_state=0)
    >>> model = model.fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> mean.shape, std.shape
    ((42,), (42,))
"""

_CLASSIFICATION_EXAMPLE = """
    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvbgp import DecoupledGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DecoupledGPClassifier(n_cov_basis=20, max_iter=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    >>> model.score(X, y) > 0.9
    True
"""


def documented(text: str, *, regression: bool) -> Callable[[type], type]:
    """Class decorator that assembles the docstring around a class's own ``text``."""
    if regression:
        parameters = _COMMON.format(
            kernel_scale=", and on the squared scale of the normalised y",
            likelihood=_LIKELIHOOD,
            normalize_y=_NORMALIZE_Y,
            n_jobs="For compatibility: one model trains on the threads of BLAS.",
        )
        attributes = _ATTRIBUTES.format(
            classes="", one="", noise=_NOISE, kernel_unit=", on the squared scale of y", n_iter=""
        )
        example = _REGRESSION_EXAMPLE
    else:
        parameters = _COMMON.format(
            kernel_scale="",
            likelihood="",
            normalize_y="",
            n_jobs="Workers that train the models of more than two classes.",
        )
        attributes = _ATTRIBUTES.format(
            classes=_CLASSES,
            one="list of ",
            noise="",
            kernel_unit=" of each model: one, or one for each class if there are more than two",
            n_iter=", the largest of all models",
        )
        example = _CLASSIFICATION_EXAMPLE

    def decorate(cls: type) -> type:
        sections = [
            text,
            "\n    Parameters\n    ----------",
            parameters,
            attributes,
            _REFERENCES,
            example,
        ]
        cls.__doc__ = inspect.cleandoc("".join(sections)) + "\n"
        return cls

    return decorate
