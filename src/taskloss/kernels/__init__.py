"""Compiled algorithms on arrays: what several of them share is here, the rest in ``ranking`` and ``labeling``.

They import the standard library, numpy, numba and one another; never torch, nor any other part of the package.
"""
