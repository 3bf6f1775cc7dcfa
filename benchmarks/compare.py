"""CPU time of ``taskloss compare`` on a large synthetic table, by method.

The table has numbers, categories and missing values, and 5% of its rows are positive. Their probability is a nonlinear function
of the columns, so no method reaches a perfect metric and none stops in its first steps.

    pip install -e '.[cli,estimators,boosting]'
    python -m benchmarks.compare --rows 25000 50000 200000 --output compare

writes ``table-ROWS.csv`` and the reports into the folder, and prints the CPU seconds of the whole command and of each method. The
command runs in one process with one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from taskloss.report import read_results

POSITIVE_SHARE = 0.05
SPLITS = 5


def make_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of insurance claims that look real: skewed amounts, categories, missing values, a rare target."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(rows, 8))
    age = np.clip(45 + 14 * latent[:, 0], 18, 95)
    amount = np.exp(6 + latent[:, 1] + 0.4 * latent[:, 2])
    premium = np.exp(5 + 0.5 * latent[:, 2] + 0.3 * rng.normal(size=rows))
    months = rng.exponential(40, rows)
    branch = rng.choice(["north", "south", "east", "west", "online"], rows, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    vehicle = rng.choice([f"model {letter}" for letter in "ABCDEFGHIJKL"], rows)
    columns: dict[str, np.ndarray] = {
        "age": age.round(),
        "amount": amount.round(2),
        "premium": premium.round(2),
        "months": months.round(1),
        "previous_claims": rng.poisson(np.exp(0.4 * latent[:, 3] - 0.5)),
        "branch": branch,
        "vehicle": vehicle,
        **{f"sensor_{index}": (latent[:, index] + 0.5 * rng.normal(size=rows)).round(4) for index in range(3, 8)},
        **{f"noise_{index}": rng.normal(size=rows).round(4) for index in range(4)},
    }
    risk = (
        0.9 * (latent[:, 1] - 0.4 * latent[:, 2])
        + 0.8 * np.maximum(latent[:, 3] * latent[:, 4], -1)
        + 0.7 * np.abs(latent[:, 5])
        + 0.6 * np.sin(2 * latent[:, 6])
        - 0.5 * np.log1p(months / 12)
        + 0.8 * (branch == "online")
        + 0.3 * np.isin(vehicle, ["model C", "model K"])
        + rng.logistic(scale=0.7, size=rows)
    )
    columns["fraud"] = np.where(risk > np.quantile(risk, 1 - POSITIVE_SHARE), "yes", "no")
    table = pd.DataFrame(columns)
    for name in ("premium", "sensor_4"):
        table.loc[rng.random(rows) < 0.08, name] = np.nan
    return table


def run_command(path: Path, output: Path, rows: int) -> float:
    """Run the command in one process and return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-c",
        "from taskloss.cli import main; main()",
        "compare",
        str(path),
        "--target",
        "fraud",
        "--splits",
        str(SPLITS),
    ]
    command += ["--max-rows", str(rows), "--jobs", "1", "--output", str(output)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Make the tables, run the command on each, print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[25_000, 50_000])
    parser.add_argument("--output", type=Path, default=Path("compare"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for rows in arguments.rows:
        path, report = arguments.output / f"table-{rows}.csv", arguments.output / f"report-{rows}"
        make_table(rows).to_csv(path, index=False)
        seconds = run_command(path, report, rows)
        results = read_results(report / "results.json")
        print(f"{rows:,} rows: {seconds:,.0f} s of CPU time; by method, seconds per run and mean test {results.metric}, %:")
        for method in results.methods:
            runs = results.runs_of(method)
            per_run, value = (np.mean([getattr(run, name) for run in runs]) for name in ("seconds", "value"))
            print(f"  {method:<16}{per_run:>8.1f}{100 * value:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
