"""Callbacks of scikit-learn's protocol: one writes a fit to a file, from which it goes on."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from skvbgp._core.journal import Journal
from skvbgp._core.linalg import Array

__all__ = ["Checkpoint"]

#: First bytes of a file, before the digest of those that follow.
_MAGIC = b"skvbgp checkpoint 1\n"


class Checkpoint:
    """Write a fit to a file every few passes, and go on from there.

    A fit whose process was killed is repeated by running the same script again: ``fit`` finds the
    file, goes on after the pass that was written last, and ends as it would have ended without the
    interruption, bit for bit. The file is removed when ``fit`` has succeeded.

    What is written are the state of the solver and of its random generators, so that
    ``random_state=None`` works, too. Starting values, and whatever else lies between passes, are
    computed again. Other callbacks hear of all passes, of those from the file without a
    ``fitted_estimator``, and what they answer to those does not count.

    Parameters
    ----------
    path : str or os.PathLike
        Of the file. Its directory has to be there. One path is for one fit at a time, so not for
        the fits of a grid search. The file is replaced at once, never written in part; while it is
        written, one with ``.tmp`` added to its name is beside it.
    every : int, default=1
        Number of passes between two writings.

    Raises
    ------
    ValueError
        From ``fit``, before any training, if the file is damaged or was written by another fit:
        of other data (X, y, weights), of other parameters, by another estimator, or with another
        version of skvbgp, NumPy, SciPy or scikit-learn. Also from ``partial_fit``, which a
        checkpoint does not cover.
    RuntimeError
        From ``fit``, if it does not repeat itself: the file was written on a machine that rounds in
        another way.
    FileNotFoundError, IsADirectoryError
        From ``fit``, before any training, if the directory is not there, or ``path`` is one.

    Warnings
    --------
    A checkpoint is a pickle, which may run any code when it is read: take none from people whom you
    do not trust.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from skvbgp import VBDTCRegressor
    >>> from skvbgp.callbacks import Checkpoint
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3.0, 3.0, (200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> path = os.path.join(tempfile.mkdtemp(), "fit.ckpt")
    >>> model = VBDTCRegressor(n_inducing=10, max_iter=5, random_state=0)
    >>> _ = model.set_callbacks(Checkpoint(path, every=2)).fit(X, y)
    >>> os.path.exists(path)  # the fit has succeeded
    False
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 1) -> None:
        self.path = os.fspath(path)
        self.every = int(check_scalar(every, "every", Integral, min_val=1))

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, every={self.every})"

    # -- scikit-learn's protocol: the work is done by what trains ----------------------------------

    def setup(self, estimator: Any, context: Any) -> None:
        """Refuse estimators of other packages."""
        if all(cls.__module__.split(".")[0] != "skvbgp" for cls in type(estimator).__mro__):
            raise TypeError(f"Checkpoint is for estimators of skvbgp, not for {estimator}.")

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing: whether the fit has succeeded is not known here."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Do nothing: passes are written when all callbacks have been asked whether to stop."""

    # -- the file ----------------------------------------------------------------------------------

    def _open(self, fit: dict[str, str]) -> Journal:
        """The journal of a fit, which goes on if there is a file of the same one."""
        path = Path(self.path)
        if path.is_dir():  # also "", the working directory
            raise IsADirectoryError(f"Checkpoint needs a file; {self.path!r} is a directory.")
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"There is no directory for the checkpoint {self.path}.")
        content = self._read(fit) if os.path.exists(self.path) else None
        return Journal(content, lambda content: self._write(fit, content), self.every)

    def _close(self) -> None:
        """Remove the file."""
        Path(self.path).unlink(missing_ok=True)  # as long as no pass has been due

    def _write(self, fit: dict[str, str], content: tuple[Any, ...]) -> None:
        stream = BytesIO()
        pickle.dump(fit, stream)
        _LayoutPickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(content)
        body = stream.getvalue()
        temporary = f"{self.path}.tmp"
        with open(temporary, "wb") as file:
            file.write(_MAGIC + sha256(body).digest() + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)

    def _read(self, fit: dict[str, str]) -> tuple[Any, ...]:
        given = Path(self.path).read_bytes()
        start = len(_MAGIC) + sha256().digest_size
        magic, digest, body = given[: len(_MAGIC)], given[len(_MAGIC) : start], given[start:]
        if magic != _MAGIC or sha256(body).digest() != digest:
            raise ValueError(f"{self.path} is not a checkpoint, or is damaged.")
        stream = BytesIO(body)
        known = pickle.load(stream)
        others = [name.replace("_", " ") for name, value in fit.items() if known[name] != value]
        if others:
            raise ValueError(
                f"{self.path} is a checkpoint of another fit, with other {', '.join(others)}: "
                "delete it to start again, or choose another path."
            )
        content: tuple[Any, ...] = pickle.load(stream)
        return content


class _LayoutPickler(pickle.Pickler):
    """Keeps how arrays lie in memory: products of matrices round by it, and pickle packs views."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.dtype.hasobject or value.flags.forc:
            return NotImplemented
        make: Callable[..., Array] = _lay_out
        return make, (np.ascontiguousarray(value), value.strides)


def _lay_out(packed: Array, strides: tuple[int, ...]) -> Array:
    """An array with the same entries, and given strides."""
    reach = [(n - 1) * stride for n, stride in zip(packed.shape, strides, strict=True)]
    before = -sum(part for part in reach if part < 0)
    after = sum(part for part in reach if part > 0)
    memory = np.zeros(before + after + packed.itemsize, dtype=np.uint8)
    entries = np.ndarray(packed.shape, packed.dtype, memory, before, strides)
    entries[...] = packed
    return entries
