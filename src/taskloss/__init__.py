"""Train on the metric you report.

>>> import torch, taskloss as tl
>>> criterion = tl.DirectLoss(tl.AveragePrecision())
>>> scores = torch.tensor([0.3, 0.9, 0.1], requires_grad=True)
>>> loss = criterion(scores, torch.tensor([1, 0, 0]))
>>> loss.item()
0.5
>>> loss.backward()

Importing torch takes seconds, so the library is loaded when its first name is used: commands that need none of it answer at once.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskloss._public import *  # noqa: F403  # The names are listed there, once.

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load a module when it is first used, or all the public names when the first of them is."""
    if not name.startswith("__") and importlib.util.find_spec(f"taskloss.{name}") is not None:
        return importlib.import_module(f"taskloss.{name}")
    if not name.startswith("__") or name == "__all__":
        public = importlib.import_module("taskloss._public")
        globals().update({known: getattr(public, known) for known in public.__all__})
        globals()["__all__"] = [*public.__all__, "boosting", "estimators", "lp", "thresholds", "__version__"]
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'taskloss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
