"""The metrics as linear programs (Meng et al. 2021): scores and target, or a matrix, to a :class:`taskloss.lp.LinearProgram`.

The programs are sparse and differentiable in the scores: ``tl.lp.differentiable_solve(program).objective`` carries the gradient.
The losses of :mod:`taskloss.lp` give the same values without solving anything; these programs are for reading, for checks, and
for metrics with constraints of one's own. One file per program; they import only what a program is made of.
"""

from taskloss.lp.formulations.auc import auc_program
from taskloss.lp.formulations.multi_class_auc import class_auc_program
from taskloss.lp.formulations.nmf import nmf_program
from taskloss.lp.formulations.operating_point import (
    greatest_recall_program,
    precision_at_recall_program,
    recall_at_precision_program,
)
from taskloss.lp.formulations.ratio import fscore_program, jaccard_program, ratio_program

__all__ = [
    "auc_program",
    "class_auc_program",
    "fscore_program",
    "greatest_recall_program",
    "jaccard_program",
    "nmf_program",
    "precision_at_recall_program",
    "ratio_program",
    "recall_at_precision_program",
]
