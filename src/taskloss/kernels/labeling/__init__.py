"""Kernels of labelings: passes over the samples, metrics of confusion counts, and the solvers of loss-augmented inference.

They import numpy, numba, one another and the shared kernels one folder up; never torch.
"""
