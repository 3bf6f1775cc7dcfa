"""Random files and options: the commands always end with a message and a documented exit code, never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from taskloss.cli import compare as compare_command
from taskloss.cli import train as train_command
from taskloss.cli.app import app
from taskloss.tasks.registry import registered
from tests.cli.running import CODES, invoke, write_claims

FEW_EXAMPLES = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
WORDS = st.one_of(
    st.sampled_from(["", "-1", "0", "1", "2", "1e9", "nan", "label", "x", "direct", "lightgbm,lp", "csv", "svmlight", "utf-16"]),
    st.text(max_size=8),
)
COMMANDS = get_command(app).commands
DECLARED = {name for command in COMMANDS.values() for option in command.params for name in option.opts if name[:2] == "--"}
# --output is left out, because the commands would write to random paths.
OPTIONS = st.sampled_from([*sorted(DECLARED - {"--output"}), "--help", "--bogus"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    write_claims(folder / "claims.csv", rows=120)
    return folder


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch):
    """Stop the commands before the training: what reads files and options comes before it."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    from taskloss.cli import runs

    monkeypatch.setattr(runs, "run_comparison", stop)
    monkeypatch.setattr(train_command, "_fit", stop)
    monkeypatch.setattr(compare_command, "_show", stop)


def check(result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in CODES
    assert "Traceback" not in result.output
    if result.exit_code:
        assert result.stderr.strip()


@FEW_EXAMPLES
@given(
    command=st.sampled_from(sorted(COMMANDS)),
    options=st.lists(st.tuples(OPTIONS, WORDS), max_size=4),
    data=st.booleans(),
)
def test_odd_options(folder, untrained, command, options, data):
    words = [word for option, value in options for word in (option, value)]
    files = [folder / "claims.csv"] if data else []
    check(invoke(command, *files, *words, *(["--output", folder / "out"] if command in ("compare", "train") else [])))


@FEW_EXAMPLES
@given(metric=st.sampled_from(list(registered())), settings_text=st.text("abk=.,:-0123456789e ", max_size=10))
def test_odd_metrics(folder, untrained, metric, settings_text):
    check(
        invoke(
            "compare",
            folder / "claims.csv",
            "--target",
            "label",
            "--metric",
            f"{metric}:{settings_text}",
            "--output",
            folder / "out",
        )
    )


@FEW_EXAMPLES
@given(
    content=st.one_of(
        st.binary(max_size=150),
        st.text('ab01,;\t"\n .%-é', max_size=150).map(str.encode),
        st.lists(st.tuples(st.sampled_from("01"), st.sampled_from(["1", "2,5", "x", "", "7%"])), max_size=60).map(
            lambda rows: ("y,a\n" + "".join(f'{y},"{a}"\n' for y, a in rows)).encode()
        ),
    ),
    name=st.sampled_from(["x.csv", "x.tsv", "x.svm", "x.parquet", "x"]),
    command=st.sampled_from(["compare", "train"]),
)
def test_odd_files(folder, untrained, content, name, command):
    path = folder / name
    path.write_bytes(content)
    check(invoke(command, path, "--target", "y", "--output", folder / "out"))
    check(invoke(command, path, "--output", folder / "out"))


@settings(FEW_EXAMPLES, max_examples=8)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("01"), st.sampled_from(["1", "2.5", "", "7"]), st.text("ab", max_size=2)),
        min_size=2,
        max_size=40,
    )
)
def test_tiny_tables_train_or_say_why(folder, rows):
    path = folder / "tiny.csv"
    path.write_text("y,a,b\n" + "".join(",".join(row) + "\n" for row in rows))
    check(invoke("train", path, "--target", "y", "--iterations", "2", "--output", folder / "out", "--force"))


@FEW_EXAMPLES
@given(content=st.binary(max_size=100), name=st.sampled_from(["results.json", "model.json", "model.safetensors"]))
def test_odd_records(folder, content, name):
    place = folder / "records"
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(content)
    check(invoke("report", place))
    check(invoke("report", place / name))
    check(invoke("predict", place, folder / "claims.csv"))
