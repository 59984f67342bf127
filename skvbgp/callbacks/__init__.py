"""Callbacks of scikit-learn's protocol for the estimators of this package."""

from skvbgp.callbacks._checkpoint import Checkpoint

__all__ = ["Checkpoint"]
