"""The settings that the classifier and the ranker share: what each means and its default, in this one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from taskloss.direct import EPSILON
from taskloss.estimators.methods import AUTO
from taskloss.tasks import Task
from taskloss.training import HIDDEN, Progress, TrainingSettings


# scikit-learn reads the parameters of an estimator from the signature of its constructor. A dataclass writes that constructor
# with its full signature, so a subclass adds a setting, or changes a default, by declaring just that one field. Estimators keep
# the comparison and the representation of scikit-learn.
@dataclass(eq=False, repr=False)
class EstimatorSettings:
    """Settings of the ensembles, the same for a classifier and a ranker.

    Args:
        metric: the task to train on, or its registered name.
        method: how to train. A loss for networks: ``"cross_entropy"``, ``"direct"`` (with the default update of the metric),
            ``"direct_positive"``, ``"direct_negative"``, ``"direct_central"``, ``"hinge"`` or ``"lp"`` (the metrics that
            :mod:`taskloss.lp` has a loss for). ``"lightgbm"``: gradient-boosted trees instead of networks;
            ``"random_forest"``: a random forest, also grown by LightGBM. Several of these, such as ``("direct", "lightgbm")``:
            their blend. ``"auto"``: the blend of cross-entropy, direct, hinge, LightGBM and the random forest, without those that
            do not apply (see ``left_out_``).
        hidden: widths of the hidden layers.
        module: ``module(n_features, n_outputs)`` builds your own network instead, ``(n, n_features) -> (n, n_outputs)``.
        epsilon: weight of the task loss in the direct losses; larger is smoother.
        members: number of networks, boosters or random forests for each method of a blend.
        folds: number of folds that the samples are dealt into; each member holds one of them out.
        max_iter: largest number of training steps of a member, and a third of a booster's rounds. A random forest has 100 trees,
            or as many as such a booster if that is fewer.
        patience: a member stops after this many steps without a better metric on its held-out fold. The default is long,
            because with rare positives the metric of a small fold stays flat or falls before it rises.
        learning_rate: learning rate of AdamW.
        weight_decay: weight decay of AdamW.
        dropout: share of hidden units that are dropped in each step.
        averaging: decay of a running mean of the weights, 0 for none.
        smoothing: steps are compared by their mean metric over this many steps.
        batch_size: up to this many samples, each step sees all of them; beyond, it sees stratified batches. None takes 32,768
            for up to 20,000 samples in all, for queries and for metrics of the top of a list; else 4,096, or as many more, up to
            32,768, as it takes for a batch to hold 200 of the rarest class.
        scaling: scaling of the columns: ``"quantile"``, ``"standard"`` or ``"none"``. A missing value becomes the middle of its
            column.
        warm_start: continue from the networks of the last fit.
        checkpoint: folder for the state of the training; a fit that was killed continues from there.
        callback: called with the member's index and a :class:`~taskloss.training.Progress` after each step; with ``n_jobs``, for
            all steps of a member once it is trained.
        n_jobs: number of processes that train members at the same time, -1 for one per core; None trains them one by one. The
            results are the same.
        verbose: 1 prints a line per member, 2 also its progress.
        threads: number of torch threads; with a fixed number, results do not depend on the machine's cores.
        random_state: seed of the splits and the initial weights.
    """

    metric: str | Task
    _: KW_ONLY
    method: str | Sequence[str] = AUTO
    hidden: Sequence[int] = HIDDEN
    module: Callable[[int, int], nn.Module] | None = None
    epsilon: float = EPSILON
    members: int = 5
    folds: int = 5
    max_iter: int = 300
    patience: int = 150
    learning_rate: float = TrainingSettings.learning_rate
    weight_decay: float = TrainingSettings.weight_decay
    dropout: float = 0.0
    averaging: float = TrainingSettings.averaging
    smoothing: int = 10
    batch_size: int | None = None
    scaling: str = "quantile"
    warm_start: bool = False
    checkpoint: str | Path | None = None
    callback: Callable[[int, Progress], None] | None = None
    n_jobs: int | None = None
    verbose: int = 0
    threads: int = 1
    random_state: Any = None
