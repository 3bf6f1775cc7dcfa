"""The figures of Meng et al. (2021), in percent."""

from __future__ import annotations

RATIOS = (0.91, 0.83, 0.71, 0.5)
"""Shares of positives in training."""

AUC = {
    "cat_dog": {
        "x-ent": (67.6, 74.6, 85.1, 87.4),
        "PPD-SG": (79.1, 81.5, 85.5, 87.1),
        "PPD-AdaGrad": (77.3, 80.6, 83.7, 86.3),
        "LP ramp": (78.6, 81.3, 85.6, 87.8),
    },
    "cifar10": {
        "x-ent": (65.2, 73.3, 78.1, 83.7),
        "PPD-SG": (69.8, 73.9, 79.1, 82.6),
        "PPD-AdaGrad": (69.7, 74.1, 78.4, 83.1),
        "LP ramp": (72.5, 74.4, 78.3, 82.7),
    },
    "cifar100": {
        "x-ent": (57.8, 58.4, 62.2, 66.3),
        "PPD-SG": (56.5, 58.9, 61.6, 65.2),
        "PPD-AdaGrad": (56.2, 59.0, 62.6, 67.6),
        "LP ramp": (58.2, 60.5, 64.5, 69.0),
    },
    "stl10": {
        "x-ent": (63.5, 67.1, 72.7, 80.8),
        "PPD-SG": (70.7, 71.6, 75.1, 77.4),
        "PPD-AdaGrad": (68.5, 72.4, 76.7, 78.5),
        "LP ramp": (68.4, 71.1, 76.7, 81.6),
    },
}
"""Table 1: for each data set and method the AUC at each ratio."""

EPSILON = {0.1: (71.3, 77.0, 84.4, 87.3), 0.01: (78.6, 81.3, 85.6, 87.8), 0.001: (65.9, 71.3, 71.8, 76.1)}
"""Table 2: the AUC on Cat&Dog by epsilon, at each ratio."""

DROP_RATES = (0.9, 0.8, 0.6, 0.0)
"""Shares of the samples of two of the three classes that are dropped."""

MULTI_CLASS = {
    "one-vs-all AUC": {
        "cifar100": {"x-ent": (54.3, 59.4, 62.7, 63.5), "LP one-vs-all": (58.4, 59.2, 64.1, 65.7)},
        "stl10": {"x-ent": (66.9, 68.0, 74.8, 81.0), "LP one-vs-all": (72.9, 72.5, 75.7, 82.7)},
    },
    "AUC-mu": {
        "cifar100": {"x-ent": (55.1, 60.6, 65.0, 64.0), "LP one-vs-all": (60.1, 61.2, 66.0, 67.2)},
        "stl10": {"x-ent": (68.9, 69.6, 75.8, 82.2), "LP one-vs-all": (76.1, 74.4, 77.7, 84.5)},
    },
}
"""Table 3: for each metric, data set and method the value at each drop rate."""

FSCORE = {
    "cat_dog": {"x-ent": 76.0, "CVXPY-SCS": 70.1, "AP-Perf": 65.3, "LP": 77.8},
    "cifar10": {"x-ent": 70.3, "CVXPY-SCS": 66.6, "AP-Perf": 66.7, "LP": 72.6},
    "cifar100": {"x-ent": 60.4, "CVXPY-SCS": 66.7, "AP-Perf": 66.4, "LP": 63.4},
    "stl10": {"x-ent": 71.8, "CVXPY-SCS": 66.6, "AP-Perf": 67.2, "LP": 72.7},
}
"""Table 4."""

STANDS_FOR = {"tiny_imagenet100": "cifar100"}
"""The data set of the paper in whose place one of ours stands."""
