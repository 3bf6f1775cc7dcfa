"""Exact values of the metrics; no gradients."""

from taskloss.metrics.ranking import average_precision_score, roc_auc_score

__all__ = ["average_precision_score", "roc_auc_score"]
