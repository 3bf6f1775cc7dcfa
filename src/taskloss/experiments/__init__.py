"""Experiments of the papers, for ``taskloss reproduce``: one file per experiment, and the data, networks and tools they share.

It may import everything but ``cli``. Images, plots and selective search need ``pip install 'taskloss[experiments]'``.
"""
