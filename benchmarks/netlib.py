"""The solver on the Netlib linear programs: status, error of the objective against HiGHS, iterations and time of each program.

    python -m benchmarks.netlib --json netlib.json
    python -m benchmarks.netlib --compare netlib.json
    python -m benchmarks.netlib --method interior_point

The first command solves every program with default settings in float64 and keeps the rows. After a change of the solver, the
second one solves them again and lists the programs whose status changed, or whose error changed by more than a factor of ten.
By default HiGHS takes over where the interior-point method finds no solution; the third command solves without it.
Each program is solved once, so its time includes the analysis of its sparsity pattern; the time of a row is wall time.

The data folder (``--data``) holds one ``.npz`` file per feasible program, and one per infeasible program in ``infeasible/``. Each
file has the arrays ``c``, ``b_ub``, ``b_eq``, ``lower``, ``upper``, the matrix entries ``ub_row``, ``ub_col``, ``ub_val`` and
``eq_row``, ``eq_col``, ``eq_val``, and ``highs_objective``, the optimal value that HiGHS reports (NaN for an infeasible program).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from benchmarks.measure import write_json

from taskloss.lp import LinearProgram, SparseMatrix, solve
from taskloss.lp.solver import EXACT_METHODS

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "netlib"
FEASIBLE, INFEASIBLE = "feasible", "infeasible"
TOLERANCES = (1e-6, 1e-8)
"""Largest errors with which a program counts as solved."""
NEGLIGIBLE = 1e-10
"""Errors below this are rounding: ``--compare`` treats them as equal."""


@dataclass(frozen=True)
class Result:
    """The solution of one program, in short."""

    name: str
    kind: str
    """``FEASIBLE`` or ``INFEASIBLE``: what the program is."""
    rows: int
    columns: int
    nonzeros: int
    status: str
    """Name of the solver's status."""
    objective_error: float
    """``|ours - HiGHS| / (1 + |HiGHS|)``; NaN for an infeasible program."""
    error: float
    """The solver's own error: the largest of infeasibility, stationarity and gap, relative."""
    iterations: int
    seconds: float

    def solved(self, tolerance: float) -> bool:
        """Return whether the objective agrees with HiGHS and the solver's own error is small, both within the tolerance."""
        claims_none = self.status in ("INFEASIBLE", "UNBOUNDED")
        return not claims_none and self.objective_error <= tolerance and self.error <= tolerance


def read_program(path: Path) -> tuple[LinearProgram, float]:
    """Return the program of a file and the optimal value of HiGHS."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in ("c", "b_ub", "b_eq", "lower", "upper")}
        for kind in ("ub", "eq"):
            size = len(file[f"b_{kind}"]), len(file["c"])
            values = torch.from_numpy(file[f"{kind}_val"])
            arrays[f"A_{kind}"] = SparseMatrix(file[f"{kind}_row"], file[f"{kind}_col"], values, size)
        optimum = float(file["highs_objective"])
    for kind in ("ub", "eq"):
        if not len(arrays[f"b_{kind}"]):
            del arrays[f"A_{kind}"], arrays[f"b_{kind}"]
    return LinearProgram(**arrays), optimum


def solve_file(path: Path, kind: str, method: str = "auto") -> Result:
    """Solve the program of a file with default settings but for the method."""
    program, optimum = read_program(path)
    matrices = [matrix for matrix in (program.A_ub, program.A_eq) if matrix is not None]
    start = time.perf_counter()
    solution = solve(program, method=method)
    seconds = time.perf_counter() - start
    return Result(
        name=path.stem,
        kind=kind,
        rows=sum(matrix.shape[0] for matrix in matrices),
        columns=len(program.c),
        nonzeros=sum(len(matrix.values) for matrix in matrices),
        status=solution.status.name,
        objective_error=abs(float(solution.objective) - optimum) / (1.0 + abs(optimum)),
        error=float(solution.error),
        iterations=int(solution.iterations),
        seconds=seconds,
    )


def find_files(folder: Path, names: Iterable[str]) -> list[tuple[Path, str]]:
    """Return the files of the named programs, or of all, with their kinds; exit with advice if there are none."""
    files = [(path, FEASIBLE) for path in sorted(folder.glob("*.npz"))]
    files += [(path, INFEASIBLE) for path in sorted((folder / "infeasible").glob("*.npz"))]
    if not files:
        raise SystemExit(f"--data {folder}: expected a folder that holds the programs as .npz files; there are none")
    wanted = {name.lower() for name in names}
    if unknown := wanted - {path.stem.lower() for path, _ in files}:
        raise SystemExit(f"--only: no program {', '.join(sorted(unknown))} in {folder}")
    return [(path, kind) for path, kind in files if not wanted or path.stem.lower() in wanted]


def print_row(result: Result) -> None:
    """Print one line of the table."""
    size = f"{result.rows:>6,}{result.columns:>9,}{result.nonzeros:>10,}"
    errors = f"{result.objective_error:>11.1e}{result.error:>9.1e}"
    print(f"{result.name:<12}{size}  {result.status:<16}{errors}{result.iterations:>6,}{result.seconds:>9.3f}", flush=True)


def print_summary(results: list[Result]) -> None:
    """Print how many programs were solved or proved infeasible, and the total iterations and time."""
    feasible, infeasible = ([result for result in results if result.kind == kind] for kind in (FEASIBLE, INFEASIBLE))
    print()
    for tolerance in TOLERANCES if feasible else ():
        failed = [f"{result.name} ({result.status})" for result in feasible if not result.solved(tolerance)]
        names = f"; not {', '.join(failed)}" if failed else ""
        print(f"solved to {tolerance:.0e}: {len(feasible) - len(failed)} of {len(feasible)}{names}")
    if infeasible:
        failed = [f"{result.name} ({result.status})" for result in infeasible if result.status != "INFEASIBLE"]
        names = f"; not {', '.join(failed)}" if failed else ""
        print(f"proved infeasible: {len(infeasible) - len(failed)} of {len(infeasible)}{names}")
    for kind, part in ((FEASIBLE, feasible), (INFEASIBLE, infeasible)):
        if part:
            iterations, seconds = sum(result.iterations for result in part), sum(result.seconds for result in part)
            print(f"{kind}: {iterations:,} iterations, {seconds:.2f} s")


def changed(before: float, after: float) -> bool:
    """Return whether two errors differ by more than a factor of ten, rounding errors aside.

    >>> changed(1e-8, 2e-7), changed(1e-15, 1e-12), changed(math.nan, math.nan), changed(1e-8, math.nan)
    (True, False, False, True)
    """
    if math.isnan(before) or math.isnan(after):
        return math.isnan(before) != math.isnan(after)
    smaller, larger = sorted((max(before, NEGLIGIBLE), max(after, NEGLIGIBLE)))
    return larger > 10.0 * smaller


def print_comparison(earlier: list[Result], results: list[Result]) -> None:
    """Print the programs whose status or error changed, and the totals of the programs that both runs have."""
    known = {(result.kind, result.name): result for result in earlier}
    pairs = [(known[key], result) for result in results if (key := (result.kind, result.name)) in known]
    print(f"\nagainst the earlier run, {len(pairs)} programs in both:")
    for before, after in pairs:
        differences = [f"status {before.status} -> {after.status}"] if before.status != after.status else []
        for label, field in (("error of the objective", "objective_error"), ("error", "error")):
            old, new = getattr(before, field), getattr(after, field)
            # The errors of an infeasible program say how far from feasible the last iterate was: nobody's concern.
            if after.kind == FEASIBLE and changed(old, new):
                differences.append(f"{label} {old:.1e} -> {new:.1e}")
        if differences:
            print(f"{after.name:<12}{'; '.join(differences)}")
    for label, field, form in (("iterations", "iterations", ",.0f"), ("seconds", "seconds", ".2f")):
        old, new = (sum(getattr(result, field) for result in column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
        print(f"{label}: {old:{form}} -> {new:{form}}")


def read_results(path: Path) -> list[Result]:
    """Read the rows that an earlier run kept."""
    return [Result(**row) for row in json.loads(path.read_text())]


def main() -> None:
    """Solve the programs, print the table and the summary, and compare with an earlier run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help=f"folder of the programs (default: {os.path.relpath(DATA)})")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="solve these programs only")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with the rows that --json wrote earlier")
    parser.add_argument("--method", choices=EXACT_METHODS, default="auto", help="of taskloss.lp.solve (default: auto)")
    arguments = parser.parse_args()
    files = find_files(arguments.data, arguments.only)
    earlier = read_results(arguments.compare) if arguments.compare else None
    # The first solve in a process loads the compiled kernels, which is not a matter of the program.
    solve_file(*files[0], arguments.method)
    head = f"{'rows':>6}{'columns':>9}{'nonzeros':>10}  {'status':<16}{'objective':>11}{'error':>9}{'iter.':>6}{'seconds':>9}"
    print(f"{'program':<12}{head}")
    results = []
    for number, (path, kind) in enumerate(files, 1):
        print(f"\r{number} of {len(files)}: {path.stem:<12}", end="", file=sys.stderr, flush=True)
        results.append(solve_file(path, kind, arguments.method))
        print("\r\033[K", end="", file=sys.stderr, flush=True)
        print_row(results[-1])
    print_summary(results)
    if earlier is not None:
        print_comparison(earlier, results)
    if arguments.json:
        write_json(arguments.json, [asdict(result) for result in results])


if __name__ == "__main__":
    main()
