"""Plots of fitted models; Matplotlib is imported when one is drawn."""

from skvbgp.inspection._kernel_posterior import KernelPosteriorDisplay

__all__ = ["KernelPosteriorDisplay"]
