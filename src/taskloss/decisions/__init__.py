"""Losses for predicted costs and decisions: the perturbed ones, and those of the field by the names that its users know.

They work over any :class:`taskloss.Structured` task, beside :class:`taskloss.DirectLoss` and
:class:`taskloss.StructuredHingeLoss`. They import the tasks, the rules of the direct loss and the advice.
"""

from taskloss.decisions.fenchel_young import PerturbedFenchelYoungLoss
from taskloss.decisions.identity import IdentityLoss
from taskloss.decisions.implicit_mle import AdaptiveImplicitMLELoss, ImplicitMLELoss
from taskloss.decisions.perturbed_direct import PerturbedDirectLoss
from taskloss.decisions.perturbed_optimizer import PerturbedOptimizerLoss
from taskloss.decisions.predicted_costs import BlackboxLoss, PerturbationGradientLoss, SPOPlusLoss

__all__ = [
    "AdaptiveImplicitMLELoss",
    "BlackboxLoss",
    "IdentityLoss",
    "ImplicitMLELoss",
    "PerturbationGradientLoss",
    "PerturbedDirectLoss",
    "PerturbedFenchelYoungLoss",
    "PerturbedOptimizerLoss",
    "SPOPlusLoss",
]
