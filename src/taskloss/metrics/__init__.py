"""Exact values of the metrics; no gradients."""

from taskloss.metrics.multiclass import (
    auc_mu_score,
    expected_cost_loss,
    hand_till_auc_score,
    multiclass_accuracy_score,
    one_vs_rest_auc_score,
    top_k_error_loss,
)
from taskloss.metrics.ranking import (
    average_precision_score,
    ndcg_score,
    partial_auc_score,
    precision_at_k_score,
    precision_at_recall_score,
    recall_at_fpr_score,
    recall_at_k_score,
    recall_at_precision_score,
    reciprocal_rank_score,
    roc_auc_score,
)

__all__ = [
    "auc_mu_score",
    "average_precision_score",
    "expected_cost_loss",
    "hand_till_auc_score",
    "multiclass_accuracy_score",
    "ndcg_score",
    "one_vs_rest_auc_score",
    "partial_auc_score",
    "precision_at_k_score",
    "precision_at_recall_score",
    "recall_at_fpr_score",
    "recall_at_k_score",
    "recall_at_precision_score",
    "reciprocal_rank_score",
    "roc_auc_score",
    "top_k_error_loss",
]
