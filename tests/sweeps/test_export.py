"""The exported table says what the store holds, in every format."""

import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparsetoken.sweeps import Store, SweepError, run_cells
from sparsetoken.sweeps import export as export_module
from sparsetoken.sweeps.export import FORMATS, write_csv, write_json, write_parquet

AWKWARD = ["plain", "with, comma", 'with "quotes"', "back\\slash", "null", "line\nbreak", "π %s"]
GRID = [{"kind": 'a, %s "b"', "slope": 0.1}, {"kind": None, "slope": 3, "extra": True}]


def awkward(_settings: dict[str, Any], trial: int) -> dict[str, Any]:
    if trial == 1:
        raise RuntimeError('bad, "very" bad\nindeed')
    text = AWKWARD[trial % len(AWKWARD)]
    return {"number": 0.1 * trial, "text": text, "flag": trial % 2 == 0, "missing": None}


def ragged(_settings: dict[str, Any], trial: int) -> dict[str, Any]:
    return {"even": trial} if trial % 2 == 0 else {"odd": 0.5, "even": 2.5}


def empty(_settings: dict[str, Any], _trial: int) -> dict[str, Any]:
    return {}


def twice(settings: dict[str, Any]) -> dict[str, Any]:
    return {"number": 2 * settings["slope"]}


def filled(path: Path, function: Any, trials: int = 9) -> Path:
    with ThreadPoolExecutor(1) as executor:
        run_cells(
            GRID, path, function=function, trials=trials, theory=twice, executor=executor, retries=0
        )
    return path


def expected(path: Path) -> list[dict[str, Any]]:
    """Return the rows by way of the slow but simple reader."""
    with Store(path) as store:
        theory = {row["cell"]: row["number"] for row in store.theory_rows()}
        names = ["kind", "slope", "extra", *store.columns("trials")]
        return [
            {
                "cell": row["cell"],
                "trial": row["trial"],
                "outcome": "done" if row["error"] is None else "failed",
                **{name: row.get(name) for name in names},
                "theory_number": theory[row["cell"]],
                "attempts": 1,
                "error": row["error"],
            }
            for row in store.rows()
        ]


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in row if name not in ("seconds", "version", "finished")}
        for row in rows
    ]


@pytest.mark.parametrize("function", [awkward, ragged, empty])
def test_json_holds_every_row(tmp_path: Path, function: Any) -> None:
    path = filled(tmp_path / "a", function)
    with Store(path) as store:
        assert write_json(store, tmp_path / "a.json") == 18
    rows = json.loads((tmp_path / "a.json").read_text())
    assert without_time(rows) == expected(path)
    assert list(rows[0])[-5:] == ["attempts", "seconds", "version", "finished", "error"]


@pytest.mark.parametrize("function", [awkward, ragged, empty])
def test_csv_holds_every_row(tmp_path: Path, function: Any) -> None:
    path = filled(tmp_path / "a", function)
    with Store(path) as store:
        assert write_csv(store, tmp_path / "a.csv") == 18
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def text(value: Any) -> str:
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value)

    assert without_time(rows) == [
        {name: text(value) for name, value in row.items()} for row in expected(path)
    ]


@pytest.mark.parametrize("function", [awkward, ragged, empty])
def test_parquet_holds_every_row(
    tmp_path: Path, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    monkeypatch.setattr(export_module, "_BATCH", 5)
    path = filled(tmp_path / "a", function)
    with Store(path) as store:
        assert write_parquet(store, tmp_path / "a.parquet") == 18
    assert without_time(parquet.read_table(tmp_path / "a.parquet").to_pylist()) == expected(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_without_trials_gives_a_table_without_rows(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "a", awkward, trials=0)
    with Store(path) as store:
        assert FORMATS[kind](store, tmp_path / "out") == 0
    assert (tmp_path / "out").stat().st_size > 0


def test_an_export_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "a", awkward)
    (tmp_path / "out").write_text("old")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export_module, "_write", full)
    with Store(path) as store, pytest.raises(SweepError, match="No space left on device"):
        write_csv(store, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    filled(tmp_path / "a", awkward, trials=1)
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from sparsetoken.sweeps import Store\n"
        "from sparsetoken.sweeps.export import write_parquet\n"
        "write_parquet(Store('a'), 'out')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Parquet needs the package pyarrow" in done.stderr
    assert "pip install '.[parquet]'" in done.stderr
