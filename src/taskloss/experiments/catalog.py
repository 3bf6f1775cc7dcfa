"""The experiments by name, in their quick and their full form, with what they cost."""

from __future__ import annotations

from typing import Any, NamedTuple

from taskloss.experiments.action import Action
from taskloss.experiments.action_fine_tuning import FineTuning
from taskloss.experiments.auc import AUC
from taskloss.experiments.auc_epsilon import AUCEpsilon
from taskloss.experiments.detection import Detection
from taskloss.experiments.experiment import Experiment
from taskloss.experiments.fscore import FScore
from taskloss.experiments.gradient_agreement import GradientAgreement
from taskloss.experiments.image_training import PAPER_ITERATIONS, PAPER_RATES
from taskloss.experiments.linear import Linear
from taskloss.experiments.multiclass_auc import MultiClassAUC
from taskloss.experiments.nmf import NMF
from taskloss.experiments.noise_robustness import NoiseRobustness
from taskloss.experiments.synthetic import Synthetic


class Form(NamedTuple):
    """An experiment at one size, and the time that it took on two cores."""

    experiment: Experiment
    cost: str


PAPER_SIZE: dict[str, Any] = {"network": "resnet18", "iterations": PAPER_ITERATIONS, "rates": PAPER_RATES}
"""Network and budget of Meng et al. (2021)."""

CATALOG: dict[str, dict[str, Form]] = {
    "synthetic": {"quick": Form(Synthetic(), "30 min"), "full": Form(Synthetic(seeds=20), "about 2 h (estimated)")},
    "noise-robustness": {
        "quick": Form(NoiseRobustness(), "17 min"),
        "full": Form(NoiseRobustness(seeds=40), "about 70 min (estimated)"),
    },
    "linear": {"quick": Form(Linear(), "3 min"), "full": Form(Linear(seeds=20), "about 13 min (estimated)")},
    "action": {"quick": Form(Action(), "33 min"), "full": Form(FineTuning(), "400 runs of 6 h (estimated): needs a GPU")},
    "detection": {
        "quick": Form(Detection(), "26 min"),
        "full": Form(
            Detection(training_images=5717, test_images=5823, near=100, others=100, tested_boxes=2000, side=227),
            "about 2 days (estimated)",
        ),
    },
    "auc": {"quick": Form(AUC(), "65 min (busy cores)"), "full": Form(AUC(**PAPER_SIZE), "needs a GPU")},
    "auc-epsilon": {"quick": Form(AUCEpsilon(), "16 min (busy cores)"), "full": Form(AUCEpsilon(**PAPER_SIZE), "needs a GPU")},
    "multiclass-auc": {
        "quick": Form(MultiClassAUC(), "23 min (busy cores)"),
        "full": Form(MultiClassAUC(**PAPER_SIZE), "needs a GPU"),
    },
    "gradient-agreement": {
        "quick": Form(GradientAgreement(), "36 min (busy cores)"),
        "full": Form(GradientAgreement(seeds=20), "1 h (estimated)"),
    },
    "nmf": {
        "quick": Form(NMF(), "20 min (busy cores)"),
        "full": Form(NMF(seeds=10, looked_at=12, measured=200), "2 h (estimated)"),
    },
    "fscore": {
        "quick": Form(FScore(), "42 min (busy cores)"),
        "full": Form(FScore(**PAPER_SIZE), "needs a GPU"),
    },
}
