"""The linear program as users state it: tensors, their shapes and checks, and the way to the arrays of the solver."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import scipy.sparse
import torch

from taskloss.lp.interior_point.data import ProgramData, normalize_bounds
from taskloss.lp.interior_point.symbolic import sparsity_of
from taskloss.lp.solution import OutputFormat
from taskloss.lp.sparse import Matrix, SparseMatrix, as_matrix, entries_by_row, values_of


@dataclasses.dataclass(frozen=True, eq=False)
class LinearProgram:
    """``min c'x  subject to  A_ub x <= b_ub,  A_eq x = b_eq,  lower <= x <= upper``, one program or a batch of them.

    With n variables, m_ub inequalities and m_eq equations the shapes are ``c (n,)``, ``A_ub (m_ub, n)``, ``b_ub (m_ub,)``,
    ``A_eq (m_eq, n)``, ``b_eq (m_eq,)``, ``lower`` and ``upper`` ``(n,)`` or a number. Each may have a leading batch axis;
    those without one are shared by the whole batch. The matrices are dense tensors, ``SparseMatrix``, torch sparse tensors (COO
    or CSR) or scipy sparse matrices; one matrix per item is a dense tensor, a ``SparseMatrix`` with one row of values per item,
    or a batched CSR tensor with the same indices in all items. What is left out is absent: **without** ``lower`` **a variable
    may be negative**, unlike in ``scipy.optimize.linprog``.

    >>> import torch
    >>> problem = LinearProgram(torch.tensor([1.0, 2.0]), A_ub=torch.tensor([[-1.0, -1.0]]), b_ub=torch.tensor([-1.0]), lower=0.0)
    >>> problem.num_variables, problem.batch_size
    (2, None)
    """

    c: torch.Tensor
    A_ub: Any = None
    b_ub: torch.Tensor | None = None
    A_eq: Any = None
    b_eq: torch.Tensor | None = None
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None
    matrices: tuple[Matrix | None, Matrix | None] = dataclasses.field(init=False, repr=False)
    """``A_ub`` and ``A_eq`` in one of two formats: dense tensors or ``SparseMatrix``."""

    def __post_init__(self) -> None:
        c = _check_vector("c", self.c)
        n = c.shape[-1]
        for kind in ("ub", "eq"):
            self._check_rows(f"A_{kind}", f"b_{kind}", n)
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if bound is not None:
                bound = torch.as_tensor(bound, dtype=c.dtype, device=c.device) if isinstance(bound, int | float) else bound
                bound = _check_vector(name, bound.expand(n) if isinstance(bound, torch.Tensor) and bound.ndim == 0 else bound, n)
                object.__setattr__(self, name, bound)
        self._check_batch()
        self._check_kind()
        if self.c.is_cpu:
            # The first solve takes these arrays; most programs are solved once.
            arrays = self._read()
            self.__dict__["_checked"] = self._versions(), arrays
        else:
            self.check_values()

    @property
    def num_variables(self) -> int:
        """Number of variables, n."""
        return int(self.c.shape[-1])

    @property
    def num_inequalities(self) -> int:
        """Number of inequalities, m_ub."""
        return 0 if self.b_ub is None else int(self.b_ub.shape[-1])

    @property
    def num_equations(self) -> int:
        """Number of equations, m_eq."""
        return 0 if self.b_eq is None else int(self.b_eq.shape[-1])

    def to_arrays(self) -> ProgramData:
        """Convert the data to arrays; those that the constructor made are used unless a tensor was changed in place since."""
        versions, arrays = self.__dict__.pop("_checked", (None, None))
        if arrays is not None and versions is not None and versions == self._versions():
            return arrays
        return self._read()

    def check_values(self) -> None:
        """Read the matrices as they are now, and raise a ``ValueError`` that names the first value that is not allowed."""
        self._read_matrices()
        self._check_values()

    def _read(self) -> ProgramData:
        self._read_matrices()
        items, n = self.batch_size or 1, self.num_variables
        m = self.num_inequalities + self.num_equations
        lower, upper = np.full((items, m + n), -np.inf), np.full((items, m + n), np.inf)
        for bounds, start, value in (
            (upper, 0, self.b_ub),
            (upper, self.num_inequalities, self.b_eq),
            (lower, self.num_inequalities, self.b_eq),
            (lower, m, self.lower),
            (upper, m, self.upper),
        ):
            if value is not None:
                bounds[:, start : start + value.shape[-1]] = value.to("cpu", torch.float64).numpy(force=True)
        cost = np.empty((items, n))
        cost[:] = self.c.to("cpu", torch.float64).numpy(force=True)
        row_start, columns, entries = self._stacked_entries(items)
        sparsity = sparsity_of(row_start, columns, n)
        arrays = ProgramData(
            sparsity=sparsity, entries=entries, cost=cost, quadratic=np.zeros_like(cost), lower=lower, upper=upper
        )
        if not normalize_bounds(arrays):
            self._check_values()
        return arrays

    def _read_matrices(self) -> None:
        # The gradient in the values of a sparse tensor goes through them, whoever reads the matrices.
        with torch.enable_grad():
            matrices = tuple(None if matrix is None else as_matrix(matrix) for matrix in (self.A_ub, self.A_eq))
        object.__setattr__(self, "matrices", matrices)

    def _stacked_entries(self, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of both matrices, inequalities first: row starts, columns, and values ``(B, entries)``."""
        read = [entries_by_row(matrix) for matrix in self.matrices if matrix is not None]
        columns = np.concatenate([np.zeros(0, np.int64), *(indices.sorted_columns for indices, _ in read)])
        row_start = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(indices.row_lengths for indices, _ in read)]))
        entries = np.empty((items, len(columns)))
        start = 0
        for _, values in read:
            entries[:, start : start + values.shape[-1]] = values
            start += values.shape[-1]
        return row_start, columns, entries

    def _versions(self) -> tuple[int, ...] | None:
        """Return how often each tensor was changed in place; None if that is not known for all of them."""
        if any(matrix is not given for matrix, given in zip(self.matrices, (self.A_ub, self.A_eq), strict=True)):
            # The values of torch's and scipy's sparse matrices may be copies.
            return None
        values = (values_of(matrix) for matrix in self.matrices if matrix is not None)
        data = [tensor for tensor in (self.c, self.b_ub, self.b_eq, self.lower, self.upper, *values) if tensor is not None]
        if any(tensor.is_inference() for tensor in data):
            return None
        return tuple(tensor._version for tensor in data)

    @property
    def output_format(self) -> OutputFormat:
        """How solutions of this program are given."""
        rows = self.num_inequalities + self.num_equations
        return OutputFormat(self.batch_size is not None, self.c.dtype, self.c.device, self.num_inequalities, rows)

    @functools.cached_property
    def batch_size(self) -> int | None:
        """Number of programs; None for one without a batch axis."""
        sizes = [size for _, size in self._batch_sizes()]
        return sizes[0] if sizes else None

    def _check_rows(self, matrix_name: str, rhs_name: str, n: int) -> None:
        matrix, rhs = getattr(self, matrix_name), getattr(self, rhs_name)
        if (matrix is None) != (rhs is None):
            given, missing = (rhs_name, matrix_name) if matrix is None else (matrix_name, rhs_name)
            raise ValueError(f"{given} was given without {missing}; give both or none")
        if matrix is None:
            return
        _check_matrix(matrix_name, matrix)
        if matrix.shape[-1] != n:
            raise ValueError(
                f"{matrix_name} has {matrix.shape[-1]} columns and c has {n} entries; expected one column per variable"
            )
        _check_vector(rhs_name, rhs)
        if rhs.shape[-1] != matrix.shape[-2]:
            raise ValueError(
                f"{rhs_name} has {rhs.shape[-1]} entries and {matrix_name} has {matrix.shape[-2]} rows; expected one per row"
            )

    def _batch_sizes(self) -> list[tuple[str, int]]:
        sizes = [(name, getattr(self, name)) for name in ("c", "b_ub", "b_eq", "lower", "upper")]
        found = [(name, int(value.shape[0])) for name, value in sizes if value is not None and value.ndim == 2]
        matrices = [(name, getattr(self, name)) for name in ("A_ub", "A_eq")]
        return found + [(name, int(value.shape[0])) for name, value in matrices if value is not None and len(value.shape) == 3]

    def _check_batch(self) -> None:
        sizes = self._batch_sizes()
        if len({size for _, size in sizes}) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes)
            raise ValueError(f"the batch sizes differ: {listed}; expected one size, or no batch axis for what is shared")
        if sizes and sizes[0][1] == 0:
            raise ValueError(f"the batch is empty: {sizes[0][0]} has 0 items; expected at least one program")

    def _check_kind(self) -> None:
        tensors = [(name, getattr(self, name)) for name in ("A_ub", "b_ub", "A_eq", "b_eq", "lower", "upper")]
        for name, tensor in tensors:
            if isinstance(tensor, torch.Tensor | SparseMatrix) and (
                tensor.dtype != self.c.dtype or tensor.device != self.c.device
            ):
                raise ValueError(
                    f"{name} is {tensor.dtype} on {tensor.device} and c is {self.c.dtype} on {self.c.device}; "
                    f"expected one dtype and device: {name}.to(c)"
                )

    def _check_values(self) -> None:
        """Raise for the first value that is not allowed, if any."""
        values = [None if matrix is None else values_of(matrix) for matrix in self.matrices]
        for name, value in (("c", self.c), ("A_ub", values[0]), ("A_eq", values[1]), ("b_eq", self.b_eq)):
            if value is not None and not bool(value.isfinite().all()):
                raise ValueError(f"{name} contains NaN or an infinite value; expected finite numbers")
        # Every comparison with a NaN is false.
        if self.b_ub is not None and not bool((self.b_ub > -math.inf).all()):
            raise ValueError("b_ub contains NaN or -inf; expected numbers, or inf for a row without a bound")
        if self.lower is not None and not bool((self.lower < math.inf).all()):
            raise ValueError("lower contains NaN or inf; expected numbers, or -inf for no bound")
        if self.upper is not None and not bool((self.upper > -math.inf).all()):
            raise ValueError("upper contains NaN or -inf; expected numbers, or inf for no bound")
        if self.lower is not None and self.upper is not None:
            crossed = self.lower > self.upper
            if bool(crossed.any()):
                j = int(crossed.nonzero()[0, -1])
                raise ValueError(f"lower > upper for variable {j}; expected lower <= upper everywhere")


def as_program(problem: Any, *arguments: Any) -> LinearProgram:
    """Return a ``LinearProgram`` itself, or the one with cost ``problem`` and the other arguments of its constructor."""
    if not isinstance(problem, LinearProgram):
        if isinstance(problem, torch.Tensor):
            return LinearProgram(problem, *arguments)
        raise TypeError(f"expected a LinearProgram, or the cost c as a torch.Tensor, got {type(problem).__name__}")
    if any(argument is not None for argument in arguments):
        raise TypeError("a LinearProgram was given together with A_ub, b_ub, A_eq, b_eq, lower or upper; give one or the other")
    return problem


def _check_vector(name: str, value: Any, length: int | None = None) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; use torch.as_tensor({name})")
    if value.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be float32 or float64, got {value.dtype}; use {name}.double()")
    if value.ndim not in (1, 2) or (value.shape[-1] == 0 and name == "c"):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; expected one number per variable or row, with or without a batch axis"
        )
    if length is not None and value.shape[-1] != length:
        raise ValueError(
            f"{name} has {value.shape[-1]} entries and c has {length}; expected one per variable, or a single number"
        )
    return value


def _check_matrix(name: str, value: Any) -> None:
    if scipy.sparse.issparse(value):
        if not np.issubdtype(value.dtype, np.floating):
            raise TypeError(f"{name} must be floating point, got {value.dtype}; use {name}.astype(float)")
        return
    if not isinstance(value, torch.Tensor | SparseMatrix):
        raise TypeError(f"{name} must be a torch.Tensor, a SparseMatrix or a scipy sparse matrix, got {type(value).__name__}")
    if value.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be float32 or float64, got {value.dtype}; use {name}.double()")
    if isinstance(value, SparseMatrix):
        return
    if value.layout not in (torch.strided, torch.sparse_coo, torch.sparse_csr):
        raise TypeError(f"{name} must be dense, COO or CSR, got {value.layout}; use {name}.to_sparse_csr()")
    if value.ndim not in (2, 3) or (value.layout == torch.sparse_coo and value.ndim == 3):
        expected = "(rows, variables), with or without a batch axis; a batch of sparse matrices must be CSR"
        raise ValueError(f"{name} has shape {tuple(value.shape)}; expected {expected}")
