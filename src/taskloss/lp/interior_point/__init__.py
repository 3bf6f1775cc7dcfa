"""The compiled solver of linear programs: an interior-point method, then the exact equations of the active set.

``driver`` runs a solve: ``equilibration``; ``predictor_corrector``, the main loop, on ``starting_point``, ``variables``, ``kkt``;
``active_set``, the exact solution; ``termination``, how good it is. ``augmented_lagrangian`` and ``certificates`` take over
where that is not enough. Below them are ``data`` (the programs as arrays), ``ldl`` and ``symbolic`` (the sparse factorization).

Files with kernels import numpy, scipy and other kernel files; only ``driver`` and ``threads`` may import the rest of the package.
"""
