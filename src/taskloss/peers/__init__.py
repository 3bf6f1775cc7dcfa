"""Rivals of this library's losses, with the same call: the baselines of Meng et al. (2021) and later ones, each by its paper.

``import taskloss`` does not load them. This package may import all of the library up to ``training``.
"""

from taskloss.peers.ap_perf import AdversarialFScoreLoss
from taskloss.peers.cvxpy_fscore import CvxpyFScoreLoss
from taskloss.peers.libauc import LibAUCMarginLoss
from taskloss.peers.pairwise import PairwiseSquaredHingeLoss
from taskloss.peers.ppd import PPDLoss, ProximalPrimalDual
from taskloss.peers.smooth_ap import SmoothAPLoss
from taskloss.peers.soap import SOAPLoss

__all__ = [
    "AdversarialFScoreLoss",
    "CvxpyFScoreLoss",
    "LibAUCMarginLoss",
    "PPDLoss",
    "PairwiseSquaredHingeLoss",
    "ProximalPrimalDual",
    "SOAPLoss",
    "SmoothAPLoss",
]
