"""The search: which kernels are tried, and how they are judged."""
