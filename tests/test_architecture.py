"""Imports point upward only, and importing the package stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import taskloss

PACKAGE = Path(taskloss.__file__).parent

# A module may import those above it.
LAYERS = [
    "_checks",
    "_embedding_checks",
    "_positive",
    "_warn",
    "_storage",
    "_processes",
    "_output_checks",
    "_solver_checks",
    "kernels",
    "layout",
    "class_layout",
    "labelings",
    "samplers",
    "metrics",
    "tasks",
    "_advice",
    "solvers",
    "known_gradient",
    "_ranks",
    "distributed",
    "direct",
    "functional",
    "decisions",
    "full_batch",
    "score_memory",
    "retrieval",
    "_public",
    "lp",
    "interop",
    "thresholds",
    "training",
    "peers",
    "tables",
    "trees",
    "precompile",
    "estimators",
    "boosting",
    "datasets",
    "report",
    "experiments",
    "cli",
    "__main__",
]


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_imports_point_upward_only():
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        assert layer in LAYERS, f"{path}: give the module its place among the layers"
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] == "taskloss" and len(parts) > 1:
                assert parts[1] in LAYERS, f"{path} imports {name} from the package's face, which stands below"
                assert LAYERS.index(parts[1]) <= LAYERS.index(layer), f"{path} imports {name} from below"


def test_kernels_know_no_torch_and_the_losses_no_task():
    imports = {path: imported_modules(path) for path in PACKAGE.rglob("*.py")}
    kernels = {
        path
        for path, names in imports.items()
        if (PACKAGE / "kernels") in path.parents or any(name.startswith("taskloss.kernels._numba") for name in names)
    }
    # taskloss.x.y or, for a name in it, taskloss.x.y.name
    modules = {".".join(("taskloss", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in kernels}
    for path in kernels:
        for name in imports[path]:
            assert name.split(".")[0] != "torch", f"{path} defines kernels and imports torch"
            known = name.split(".")[0] != "taskloss" or name in modules or name.rpartition(".")[0] in modules
            assert known, f"{path} defines kernels and imports {name}, which is no kernel"
    names = imported_modules(PACKAGE / "direct.py")
    assert {name for name in names if name.startswith("taskloss.tasks")} <= {
        f"taskloss.tasks.{name}"
        for name in (
            "registry.as_task",
            "registry.handle_of",
            "registry.task_of",
            "task.Call",
            "task.Inference",
            "task.Objective",
            "task.Task",
        )
    }


def test_import_is_light():
    heavy = ["sklearn", "pandas", "matplotlib", "scipy.stats", "typer", "rich", "lightgbm", "xgboost", "torch._dynamo"]
    use = "import sys, torch; known = set(sys.modules); import taskloss; taskloss.DirectLoss"
    program = f"{use}; print({{*{heavy}}} & (set(sys.modules) - known))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_import_without_use_loads_nothing():
    program = "import sys, taskloss; print({'torch', 'numba', 'numpy', 'scipy'} & set(sys.modules)); taskloss.ROCAUC()"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
