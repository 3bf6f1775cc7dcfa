"""Exact values of the metrics; no gradients."""

from taskloss.metrics.ranking import (
    average_precision_score,
    graded_ndcg_score,
    ndcg_score,
    partial_auc_score,
    precision_at_k_score,
    precision_at_recall_score,
    recall_at_fpr_score,
    recall_at_k_score,
    recall_at_precision_score,
    reciprocal_rank_score,
    roc_auc_score,
    separable_score,
)

__all__ = [
    "average_precision_score",
    "graded_ndcg_score",
    "ndcg_score",
    "partial_auc_score",
    "precision_at_k_score",
    "precision_at_recall_score",
    "recall_at_fpr_score",
    "recall_at_k_score",
    "recall_at_precision_score",
    "reciprocal_rank_score",
    "roc_auc_score",
    "separable_score",
]
