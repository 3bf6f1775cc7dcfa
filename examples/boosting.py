"""Gradient boosting on average precision: LightGBM with log loss, and with the direct gradient after 50 rounds of log loss.

    pip install -e '.[boosting]'
    python examples/boosting.py

A fifth of the training and validation labels are flipped; the test labels are clean. Both models have the same tree settings and
round limit, and both stop by the exact average precision of the validation samples. There are three random splits.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np

import taskloss as tl
from taskloss.datasets import load_page_blocks

ROUNDS, WARM_UP = 300, 50
PARAMS = {
    **{"objective": "binary", "metric": "None", "learning_rate": 0.05, "num_leaves": 7, "min_data_in_leaf": 50},
    **{"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1},
}


def early_stopping_options(validation: lightgbm.Dataset) -> dict[str, Any]:
    """Return the training options that stop early by the exact metric of the validation samples."""
    metric, stop = tl.boosting.lightgbm_metric("average_precision"), lightgbm.early_stopping(50, verbose=False)
    return {"valid_sets": [validation], "feval": metric, "callbacks": [stop]}


def main() -> None:
    """Print the test AP of both models."""
    features, target = load_page_blocks()
    objective = tl.boosting.lightgbm_objective("average_precision")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        training, validation, test = np.split(rng.permutation(len(target)), (2000, 3000))
        noisy = np.where(rng.random(len(target)) < 0.2, 1 - target, target)

        def dataset(rows: np.ndarray, labels: np.ndarray = noisy, **options: Any) -> lightgbm.Dataset:
            return lightgbm.Dataset(features[rows], labels[rows], free_raw_data=False, **options)

        data = dataset(training)
        plain = lightgbm.train(PARAMS, data, ROUNDS, **early_stopping_options(dataset(validation, reference=data)))
        data = dataset(training)  # A new one, because LightGBM keeps the scores of the first stage in it.
        options = early_stopping_options(dataset(validation, reference=data))
        direct, _ = tl.boosting.train_lightgbm(PARAMS, data, ROUNDS, objective, warm_up=WARM_UP, **options)
        for name, model in (("log loss", plain), ("direct AP", direct)):
            value = tl.metrics.average_precision_score(model.predict(features[test], raw_score=True), target[test])
            print(f"split {seed}, {name}: test AP {value:.4f} after {model.best_iteration} rounds")


if __name__ == "__main__":
    main()
