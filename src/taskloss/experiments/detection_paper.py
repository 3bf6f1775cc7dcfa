"""The figures of the papers for object detection, and the settings that its page names."""

from __future__ import annotations

NOISE = (0.0, 0.2)
"""Shares of flipped labels."""
BATCHES = (512, 2048)
METHODS = ("x-ent", "hinge-AP", "pos-AP")
HIDDEN = (32,)
SUPPRESSION = 0.3
"""Largest overlap of two detections of a class, as in R-CNN."""
PAPER_RATES = {"hinge-AP": 1.0, "pos-AP": 0.1}
"""The paper's learning rates, with weight decay 1e-7 and epsilon 0.1."""

# In percent: the twenty classes in the order of VOC, and their mean.
_ROWS = {
    ("x-ent", 0.0): "63.8 61.0 42.6 30.7 23.5 63.2 51.7 58.5 20.1 37.0 32.0 52.8 50.8 62.5 50.1 23.5 48.3 33.1 48.5 57.4 45.6",
    ("hinge-AP", 0.0): "67.5 60.6 43.6 30.8 25.3 64.5 54.9 64.4 21.9 34.5 34.2 57.0 48.8 63.9 56.3 25.1 49.6 37.4 54.3 57.3 47.6",
    ("pos-AP", 0.0): "65.1 59.8 43.7 31.4 27.7 64.6 53.1 63.7 25.6 40.2 36.2 58.1 52.8 63.6 56.2 28.1 50.0 38.9 50.0 61.3 48.5",
    ("softmax", 0.0): "66.4 57.8 42.4 26.1 25.6 62.3 52.9 61.0 23.9 44.6 34.7 56.4 51.0 65.7 51.2 29.8 50.5 29.6 48.7 60.0 47.0",
    ("hinge-AP", 0.2): "0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0",
    ("pos-AP", 0.2): "52.8 54.0 33.6 20.9 20.0 50.6 45.9 55.7 23.1 26.4 35.2 47.2 39.7 54.2 53.3 22.5 42.6 32.5 40.5 55.0 40.3",
}

TABLE_2 = {key: tuple(map(float, row.split())) for key, row in _ROWS.items()}
"""Table 2 by method and share of flipped labels; the softmax, trained for all classes at once, is from the older version."""
