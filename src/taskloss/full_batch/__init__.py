"""The exact gradient of a loss over more batches than fit into memory at once: ``full_batch_backward`` and its parts.

This package may import ``_checks``; it knows neither the losses nor the tasks. A criterion is any ``(scores, target) -> loss``.
"""

from taskloss.full_batch.backward import full_batch_backward

__all__ = ["full_batch_backward"]
