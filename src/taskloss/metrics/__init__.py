"""Exact values of the metrics; no gradients.

They import the layouts and the kernels. The tasks take the values of their predictions from here.
"""

from taskloss.metrics import confusion, multiclass, ranking
from taskloss.metrics.confusion import *  # noqa: F403  # Each module lists its public scores.
from taskloss.metrics.multiclass import *  # noqa: F403  # As above.
from taskloss.metrics.ranking import *  # noqa: F403  # As above.

__all__: list[str] = []
__all__ += confusion.__all__
__all__ += multiclass.__all__
__all__ += ranking.__all__
