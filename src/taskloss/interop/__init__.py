"""Our solvers inside other libraries, so that code written for these keeps running: cvxpylayers and PyEPO.

It imports the linear programs and the solvers; the other libraries are optional: ``pip install 'taskloss[peers]'``.
"""
