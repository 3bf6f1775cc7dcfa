"""The metrics as linear programs: losses with the calls of the rest of the library.

``solver="exact"`` (default) takes the value and the gradient from a closed form or a sort, ``solver="newton"`` solves the program
of :mod:`taskloss.lp.formulations` as Meng et al. (2021) do, one item after another. Both give the same value, and the same
gradient wherever there is one.
"""

from taskloss.lp.losses.areas import AUCLoss, MultiClassAUCLoss, auc_loss, multi_class_auc_loss
from taskloss.lp.losses.operating_points import (
    PrecisionAtRecallLoss,
    RecallAtPrecisionLoss,
    precision_at_recall_loss,
    recall_at_precision_loss,
)
from taskloss.lp.losses.ratios import FScoreLoss, JaccardLoss, RatioLoss, fscore_loss, jaccard_loss, ratio_loss

__all__ = [
    "AUCLoss",
    "FScoreLoss",
    "JaccardLoss",
    "MultiClassAUCLoss",
    "PrecisionAtRecallLoss",
    "RatioLoss",
    "RecallAtPrecisionLoss",
    "auc_loss",
    "fscore_loss",
    "jaccard_loss",
    "multi_class_auc_loss",
    "precision_at_recall_loss",
    "ratio_loss",
    "recall_at_precision_loss",
]
