"""Small real data sets that come with the package, so that a first try needs no download; README.md here names the sources.

This package may import numpy only.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

__all__ = ["PAGE_BLOCKS_SOURCE", "load_page_blocks"]

PAGE_BLOCKS_SOURCE = "Page Blocks: Malerba 1994, UCI Machine Learning Repository, doi:10.24432/C5J590, CC BY 4.0"


def load_page_blocks() -> tuple[np.ndarray, np.ndarray]:
    """Load blocks of scanned pages; positive are those that are not text (lines, graphics, pictures).

    Malerba, *Page Blocks Classification*, 1994 (CC BY 4.0). Of the 5,393 blocks, 510 (9.5%) are positive. The features are sizes
    and pixel counts.

    Returns:
        Features, float32 of shape ``(5393, 10)``, and the target, int64 of shape ``(5393,)``.

    >>> features, target = load_page_blocks()
    >>> features.shape, int(target.sum())
    ((5393, 10), 510)
    """
    with resources.files(__name__).joinpath("page_blocks.csv").open(encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1)
    return table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64)
