"""The algorithms, in numpy and numba; no torch."""
