"""Kernels of rankings: a ranking as counts, values of metrics, and the solvers of loss-augmented inference.

They import numpy, numba, one another and the shared kernels one folder up; never torch.
"""
