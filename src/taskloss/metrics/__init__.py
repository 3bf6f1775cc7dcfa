"""Exact values of the metrics; no gradients."""

from taskloss.metrics.counts import (
    accuracy_score,
    balanced_accuracy_score,
    fbeta_score,
    g_mean_score,
    jaccard_score,
    mcc_score,
    mean_iou_score,
)
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
    "accuracy_score",
    "average_precision_score",
    "balanced_accuracy_score",
    "fbeta_score",
    "g_mean_score",
    "graded_ndcg_score",
    "jaccard_score",
    "mcc_score",
    "mean_iou_score",
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
