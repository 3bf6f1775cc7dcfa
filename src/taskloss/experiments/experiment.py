"""What an experiment is: it runs cells, keeps its results as JSON, and makes a page from the results alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from taskloss.experiments.page import Page
from taskloss.experiments.runner import Runner

Results = dict[str, Any]
"""The outcome of an experiment, as JSON values: all that its page shows."""


@dataclass(frozen=True)
class Experiment(ABC):
    """One table or figure of a paper. The fields of a subclass are its size; their defaults are those of its quick form."""

    seeds: int
    """Number of seeds if the user gives none."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    """The paper and its table or figure."""

    @abstractmethod
    def run(self, runner: Runner, seeds: int) -> Results:
        """Run all cells and return what the page needs."""

    @abstractmethod
    def make_page(self, results: Results) -> Page:
        """Return the page of the results."""
