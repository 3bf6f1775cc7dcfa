"""Kernels of rankings: the interleaving of positives and negatives, metric values, and the solvers of loss-augmented inference.

They import numpy, numba and the shared kernels one folder up; never torch.
"""
