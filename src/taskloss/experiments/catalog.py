"""The experiments by name, in their quick and their full form, with what they cost."""

from __future__ import annotations

from typing import NamedTuple

from taskloss.experiments.action import Action
from taskloss.experiments.action_fine_tuning import FineTuning
from taskloss.experiments.detection import Detection
from taskloss.experiments.experiment import Experiment
from taskloss.experiments.linear import Linear
from taskloss.experiments.noise_robustness import NoiseRobustness
from taskloss.experiments.synthetic import Synthetic


class Form(NamedTuple):
    """An experiment at one size, and the time that it took on two cores."""

    experiment: Experiment
    cost: str


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
}
