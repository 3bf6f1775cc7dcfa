"""From records to a table's figures, a picture and one HTML page; never trains."""

from taskloss.report.files import as_json, write_report
from taskloss.report.records import Comparison, Run, precision_at_positives
from taskloss.report.summary import Summary, seed_rows, summarize, summary_rows

__all__ = [
    "Comparison",
    "Run",
    "Summary",
    "as_json",
    "precision_at_positives",
    "seed_rows",
    "summarize",
    "summary_rows",
    "write_report",
]
