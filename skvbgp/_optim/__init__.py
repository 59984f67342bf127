"""Optimisers over flat vectors; none of them knows a model."""
