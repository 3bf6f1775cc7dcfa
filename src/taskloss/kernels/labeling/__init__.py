"""Kernels of labelings: passes over the samples, confusion counts, and the solvers of loss-augmented inference.

They import numpy, numba and the shared kernels one folder up; never torch.
"""
