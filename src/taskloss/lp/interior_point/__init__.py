"""The compiled solver of linear programs: an interior-point method, then exact equations of the active set.

A solve passes ``driver`` (the stages), ``data`` (the program as arrays), ``equilibration``, ``predictor_corrector`` (the main
loop) with ``variables`` and ``kkt``, ``ldl`` and ``symbolic`` (sparse factorization), ``active_set`` (the exact solution) and
``termination``. ``augmented_lagrangian`` and ``certificates`` take over where that is not enough. Files with kernels import
numpy, numba and one another; only ``driver`` and ``threads`` know torch.
"""
