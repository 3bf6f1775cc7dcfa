"""Linear programs in the network: a solver, a layer with gradients in all of the data, and the metrics as linear programs.

It imports the kernels, the checks and, for the losses, the tasks and ``direct``; nothing of the estimators or the command line.
"""

from taskloss.lp import formulations
from taskloss.lp.epsilon import EpsilonChoice, choose_epsilon
from taskloss.lp.feasible_set import FeasibleSet
from taskloss.lp.layer import LPLayer, differentiable_solve
from taskloss.lp.losses import (
    AUCLoss,
    FScoreLoss,
    JaccardLoss,
    MultiClassAUCLoss,
    PrecisionAtRecallLoss,
    RatioLoss,
    RecallAtPrecisionLoss,
    auc_loss,
    fscore_loss,
    jaccard_loss,
    multi_class_auc_loss,
    precision_at_recall_loss,
    ratio_loss,
    recall_at_precision_loss,
)
from taskloss.lp.newton import NewtonSolution, newton_solve
from taskloss.lp.nmf import Factorization, nmf
from taskloss.lp.penalty_layer import BurnIn, PenaltyLayer
from taskloss.lp.problem import LinearProgram
from taskloss.lp.solution import ActiveSet, Solution, Status
from taskloss.lp.solver import solve
from taskloss.lp.sparse import SparseMatrix

__all__ = [
    "AUCLoss",
    "ActiveSet",
    "BurnIn",
    "EpsilonChoice",
    "FScoreLoss",
    "Factorization",
    "FeasibleSet",
    "JaccardLoss",
    "LPLayer",
    "LinearProgram",
    "MultiClassAUCLoss",
    "NewtonSolution",
    "PenaltyLayer",
    "PrecisionAtRecallLoss",
    "RatioLoss",
    "RecallAtPrecisionLoss",
    "Solution",
    "SparseMatrix",
    "Status",
    "auc_loss",
    "choose_epsilon",
    "differentiable_solve",
    "formulations",
    "fscore_loss",
    "jaccard_loss",
    "multi_class_auc_loss",
    "newton_solve",
    "nmf",
    "precision_at_recall_loss",
    "ratio_loss",
    "recall_at_precision_loss",
    "solve",
]
