"""The metrics as linear programs: one file per metric with its loss, value and gradient; its kernel in ``*_kernel.py`` beside it.

``solver="exact"`` (default) takes the value and the gradient from a closed form or a sort. ``solver="lp"`` builds the program of
:mod:`taskloss.lp.formulations`, solves it by the interior-point method of :mod:`taskloss.lp` and differentiates its value, one
program per ranking or labeling, as Meng et al. (2021) do. Both give the same value, and the same gradient wherever there is one.

Losses import the formulations, the solver and :mod:`taskloss.direct`; kernels import neither torch nor anything but kernels.
"""

from taskloss.lp.losses.auc import AUCLoss, auc_loss
from taskloss.lp.losses.multi_class_auc import MultiClassAUCLoss, multi_class_auc_loss
from taskloss.lp.losses.operating_point import (
    PrecisionAtRecallLoss,
    RecallAtPrecisionLoss,
    precision_at_recall_loss,
    recall_at_precision_loss,
)
from taskloss.lp.losses.ratio import FScoreLoss, JaccardLoss, RatioLoss, fscore_loss, jaccard_loss, ratio_loss

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
