"""Rows of a known kernel, and searches for kernels."""

import numpy as np

from skvbgp.gp._process import start_process
from skvbgp.gp.classes._few_places import FewPlacesSearch
from skvbgp.gp.classes._many_places import ManyPlacesSearch
from skvbgp.gp.classes._start import make_class_kernels
from skvbgp.gp.search._few_rows import FewRowsSearch
from skvbgp.gp.search._many_rows import ManyRowsSearch
from skvbgp.gp.search._sample import Sample
from skvbgp.kernels._candidates import make_base_kernels


def make_rows(kernel, n, noise=1e-2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(n))
    return X, L @ rng.standard_normal(n)


def make_search(X, y, k, end_pass=lambda make: False, max_iter=10, **parameters):
    """A search of rows that are predicted from k neighbours, of which they may be all."""
    rng, kind = np.random.RandomState(0), FewRowsSearch if len(X) <= k else ManyRowsSearch
    return kind(Sample(X, y, rng), (k,), rng, max_iter, 1e-5, end_pass, **parameters)


def make_starts(names, *, gaussian):
    kernels = dict(make_base_kernels(2))
    return [(name, start_process(kernels[name], gaussian=gaussian)) for name in names]


def make_class_search(votes, d, k, rng=None, max_iter=1, end_pass=lambda make: False, m=0):
    """A search of votes on places that are predicted from k neighbours, which may be all others."""
    rng = np.random.RandomState(0) if rng is None else rng
    known = votes, d, rng, max_iter, 1e-3, end_pass
    return FewPlacesSearch(*known) if len(votes) <= k else ManyPlacesSearch(*known, k, m)


def try_few_kernels(patch):
    """Let searches of estimators begin with two kernels."""
    patch.setattr("skvbgp.gp._learner.make_base_kernels", choose_few(make_base_kernels))
    patch.setattr("skvbgp.gp.classes._learner.make_class_kernels", choose_few(make_class_kernels))


def choose_few(make):
    return lambda d: [pair for pair in make(d) if pair[0] in ("Matern-5/2", "SE")]
