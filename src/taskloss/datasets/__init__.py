"""Small real data sets that come with the package, so that a first try needs no download; README.md here names the sources.

This package may import numpy only.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["BUNDLED", "BundledSet", "load_page_blocks", "load_white_wine"]


class BundledSet(NamedTuple):
    """A CSV file of this package whose last column, ``target``, is 0 or 1."""

    title: str
    source: str
    """Who made the data, where they are published, and the licence."""
    file: str

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(__file__).with_name(self.file)

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features, float32 ``(n, d)``, and the target, int64 ``(n,)``."""
        with self.path.open(encoding="ascii") as lines:
            table = np.loadtxt(lines, delimiter=",", skiprows=1)
        return table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64)


BUNDLED = {
    "wine": BundledSet(
        "White Wine",
        "White Wine: Cortez et al. 2009, UCI Machine Learning Repository, doi:10.24432/C56S3T, CC BY 4.0",
        "white_wine.csv",
    ),
    "page-blocks": BundledSet(
        "Page Blocks",
        "Page Blocks: Malerba 1994, UCI Machine Learning Repository, doi:10.24432/C5J590, CC BY 4.0",
        "page_blocks.csv",
    ),
}
"""The sets by the names that the command line knows them by, in the order in which it compares them."""


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
    return BUNDLED["page-blocks"].load()


def load_white_wine() -> tuple[np.ndarray, np.ndarray]:
    """Load white wines that tasters graded 3 or 7 of 10; positive are those with a 3, the lowest grade that a wine got.

    Cortez et al., *Wine Quality*, 2009 (CC BY 4.0). Of the 900 wines, 20 (2.2%) are positive. The features are chemical
    measurements.

    Returns:
        Features, float32 of shape ``(900, 11)``, and the target, int64 of shape ``(900,)``.

    >>> features, target = load_white_wine()
    >>> features.shape, int(target.sum())
    ((900, 11), 20)
    """
    return BUNDLED["wine"].load()
