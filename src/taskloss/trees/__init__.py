"""Trees of LightGBM as arrays: a fitted LightGBM model becomes a :class:`Forest`, which a file can hold safely.

This package may import ``_checks`` and ``kernels``, and nothing else of taskloss; it trains nothing and needs no LightGBM.
"""

from taskloss.trees.forest import Forest

__all__ = ["Forest"]
