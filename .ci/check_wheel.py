"""Try the installed package: every module, every file that is not Python, the command line and one loss.

``make wheel`` runs this in an environment that holds nothing but the wheel and its requirements.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

FILES = {
    "taskloss": ["py.typed"],
    "taskloss.datasets": ["page_blocks.csv", "white_wine.csv", "README.md"],
    "taskloss.experiments.texts": [
        "action.md",
        "action-features.md",
        "action-fine-tuning.md",
        "auc.md",
        "auc-epsilon.md",
        "detection.md",
        "fscore.md",
        "gradient-agreement.md",
        "linear.md",
        "multiclass-auc.md",
        "nmf.md",
        "noise-robustness.md",
        "synthetic.md",
    ],
    "taskloss.report": ["page.css", "page.js", "template.html.j2"],
}


def check_files() -> None:
    """Raise if one of the files that are not Python is missing or empty."""
    for package, names in FILES.items():
        for name in names:
            file = resources.files(package).joinpath(name)
            if not file.is_file():
                raise SystemExit(f"{name} is missing in {package}")
            if name != "py.typed" and not file.read_text(encoding="utf-8").strip():
                raise SystemExit(f"{name} is empty in {package}")


def import_modules() -> int:
    """Import every module of the package and return their number."""
    import taskloss

    names = [module.name for module in pkgutil.walk_packages(taskloss.__path__, "taskloss.")]
    for name in names:
        importlib.import_module(name)
    return len(names)


def check_loss() -> None:
    """Compute one loss and its gradient."""
    import torch

    import taskloss as tl

    scores = torch.tensor([0.3, 0.9, 0.2, 0.4], requires_grad=True)
    loss = tl.DirectLoss("average_precision")(scores, torch.tensor([1, 0, 0, 1]))
    loss.backward()
    if abs(loss.item() - 5 / 12) > 1e-6 or not scores.grad.any():
        raise SystemExit(f"the loss is {loss.item()} and its gradient {scores.grad}")


def check_command_line() -> None:
    """Run the help of the command line and of each command."""
    command = str(Path(sys.executable).with_name("taskloss"))
    for arguments in ([], ["compare"], ["train"], ["predict"], ["report"], ["reproduce"], ["tasks"]):
        subprocess.run([command, *arguments, "--help"], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Run all checks and say what was found."""
    check_files()
    modules = import_modules()
    place = Path(sys.modules["taskloss"].__file__ or "").parent
    if not place.is_relative_to(sys.prefix):
        raise SystemExit(f"taskloss was imported from {place}, not from the environment {sys.prefix}")
    check_loss()
    check_command_line()
    print(f"the wheel works: {modules} modules, {sum(map(len, FILES.values()))} data files, the command line and a loss")


if __name__ == "__main__":
    main()
