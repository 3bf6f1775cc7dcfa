"""What the commands say about columns, and the options that correct it: --drop, --id, --keep, --dates."""

from __future__ import annotations

import csv
import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import invoke

QUICK = ("--target", "fraud", "--iterations", "5")


@pytest.fixture(scope="module")
def euro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file as European software does: semicolons, decimal commas, days before months, shuffled customer numbers."""
    path = tmp_path_factory.mktemp("data") / "euro.csv"
    rng = np.random.default_rng(0)
    amount, balance = rng.normal(size=(2, 200))
    customers = rng.permutation(200) + 5000
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["customer", "amount", "balance", "day", "paid at", "place", "fraud"])
        for row in range(200):
            day = date(2020, 1, 1) + timedelta(days=int(rng.integers(600)))
            euros = f"{2000 + 500 * amount[row]:,.2f}".translate(str.maketrans(",.", ".,"))
            owed = f"({abs(100 * balance[row]):.0f})" if balance[row] < 0 else f"{100 * balance[row]:.0f}"
            place = "abc"[row % 3]
            label = "yes" if amount[row] + balance[row] > 1.2 else "no"
            writer.writerow([customers[row], euros, owed, f"{day:%d/%m/%Y}", f"{row % 24}:{row % 60:02}", place, label])
    return path


def lines_of(text: str) -> dict[str, str]:
    """Return the lines about the columns by name."""
    block = text.split("Columns\n")[1].splitlines()
    return dict(line.strip().split("  ", 1) for line in block if line.startswith("  ") and "  " in line.strip())


def test_one_line_per_column(euro, tmp_path: Path):
    result = invoke("train", euro, *QUICK, "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    said = {name: line.strip() for name, line in lines_of(result.stdout).items()}
    assert list(said) == ["customer", "amount", "balance", "day", "paid at", "place", "fraud"]
    assert said["customer"] == "left out: an identifier, whole numbers 5000 to 5199 (use it: --keep)"
    assert said["amount"].startswith("numbers, '")
    assert said["balance"].startswith("numbers, '(")
    assert said["day"].startswith("dates, '")
    assert said["paid at"] == "times, '0:00' is read as 0 hours"
    assert (said["place"], said["fraud"]) == ("3 categories", "target")


def test_options_for_columns(euro, tmp_path: Path):
    options = ("--drop", "place", "--id", "day", "--keep", "customer", "--json")
    result = invoke("train", euro, *QUICK, *options, "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["columns"]
    assert (said["place"], said["day"], said["customer"]) == ("left out: as --drop says", "identifies the rows (--id)", "numbers")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert [column["name"] for column in record["encoder"]["columns"]] == ["customer", "amount", "balance", "paid at"]
    assert record["facts"]["ids"] == ["day"]
    for option in ("--drop", "--id", "--keep"):
        result = invoke("train", euro, *QUICK, option, "nothing", "--output", tmp_path / "other")
        assert (result.exit_code, "has no column 'nothing'" in result.stderr) == (3, True)


def test_ambiguous_dates_ask(tmp_path: Path):
    path = tmp_path / "days.csv"
    path.write_text(
        "day,x,fraud\n" + "".join(f"{1 + row % 12:02}/{1 + row % 7:02}/2023,{row % 5},{int(row % 4 == 0)}\n" for row in range(60))
    )
    result = invoke("train", path, *QUICK, "--output", tmp_path / "model")
    assert (result.exit_code, "--dates day-first or --dates month-first" in result.stderr) == (3, True)
    for order, words in (("day-first", "2023-01-02"), ("month-first", "2023-02-01")):
        result = invoke("train", path, *QUICK, "--dates", order, "--output", tmp_path / order)
        assert result.exit_code == 0, result.output
        assert words in result.stdout or "2023-01-01" in result.stdout
        # The model knows the order: predictions do not ask again.
        assert invoke("predict", tmp_path / order, path).exit_code == 0
    result = invoke("train", path, *QUICK, "--dates", "year-first", "--output", tmp_path / "model")
    assert (result.exit_code, "expected day-first or month-first" in result.stderr) == (2, True)


def test_wide_tables_get_a_few_lines(tmp_path: Path):
    path = tmp_path / "wide.csv"
    names = [f"x{column}" for column in range(60)]
    rows = (",".join([str((row * 7 + column) % 11) for column in range(60)] + ["1", str(int(row % 4 == 0))]) for row in range(40))
    path.write_text(",".join([*names, "same", "fraud"]) + "\n" + "\n".join(rows) + "\n")
    result = invoke("train", path, *QUICK, "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "same  left out: it is 1 everywhere" in result.stdout
    assert "and 61 more columns of plain numbers and categories" in result.stdout
