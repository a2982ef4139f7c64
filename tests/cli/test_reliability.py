"""Outputs replace nothing that is not theirs, and no terminal loses a result."""

import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparsetoken.cli import main
from sparsetoken.sweeps import read_study, run_sweep

STUDY = """
classifiers = "pooled"
dimensions = 20
trials = 2
theory = false
[task]
length = 4
informative = 1
strength = [2, 4]
[training]
alpha0 = 2
alpha1 = 2
loss = "square"
"""
CURVE = ["align", "--over", "alpha0", "--points", "2", "--plot"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    fill(path)
    return path


def fill(path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        run_sweep(read_study(path), path.with_suffix(".sqlite"), executor=executor)


def test_an_export_never_replaces_the_study_or_a_store(study: Path, tmp_path: Path) -> None:
    store, link = study.with_suffix(".sqlite"), tmp_path / "link.csv"
    (tmp_path / "other.sqlite").write_bytes(store.read_bytes())
    link.symlink_to(store)
    os.link(study, tmp_path / "hard.csv")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("study.toml", "study.sqlite", "other.sqlite", "link.csv", "hard.csv"):
        for force in ([], ["--force"]):
            result = invoke("sweep", "export", study, "--csv", tmp_path / name, *force)
            assert result.exit_code == 2, name
            assert "is read by this command" in result.output or "is a store" in result.output
            result = invoke("sweep", "plot", study, "--output", tmp_path / name, *force)
            assert result.exit_code == 2, name
    assert {path: path.read_bytes() for path in before} == before
    assert link.is_symlink()


def test_what_is_not_a_regular_file_stays_what_it_is(study: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.svg")
    for place in (tmp_path / "fifo.svg", Path(os.devnull)):
        kind = stat.S_IFMT(place.stat().st_mode)
        result = invoke("sweep", "export", study, "--json", place, "--force")
        assert (result.exit_code, "is not a regular file" in result.output) == (2, True)
        assert stat.S_IFMT(place.stat().st_mode) == kind
    result = invoke(*CURVE, tmp_path / "fifo.svg", "--force")
    assert (result.exit_code, "is not a regular file" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["sweep", "export", "STUDY", "--csv"], "out.csv"),
        (["sweep", "export", "STUDY", "--json"], "out.json"),
        (["sweep", "export", "STUDY", "--parquet"], "out.parquet"),
        (["sweep", "plot", "STUDY", "--x", "strength", "--output"], "out.svg"),
        (["sweep", "plot", "STUDY", "--x", "strength", "--output"], "out.png"),
        (["sweep", "plot", "STUDY", "--x", "strength", "--output"], "out.pdf"),
        (CURVE, "out.svg"),
        (["simulate", "--dimension", "20", "--trials", "1", "--classifier", "pooled", "--csv"],
         "out.csv"),
        (["predict", "--classifier", "pooled", "--metric", "roc", "--plot"], "out.svg"),
        (["floor", "--over", "alpha", "--points", "2", "--tolerance", "0.1", "--plot"], "out.svg"),
        (["shift", "--to", "11", "--points", "2", "--tolerance", "0.1", "--plot"], "out.svg"),
        (["descend", "--steps", "1", "--tolerance", "0.1", "--plot"], "out.svg"),
        (["map", "--points", "2", "--workers", "1", "--csv"], "out.csv"),
        pytest.param(["plan", "--samples", "99", "--dimension", "9", "--trials", "0", "--save"],
                     "out.toml", marks=pytest.mark.slow),
        (["explore", "--state", "view=inside", "--export"], "out.html"),
    ],
    ids=lambda part: part if isinstance(part, str) else part[0],
)  # fmt: skip
def test_a_command_replaces_its_own_output_and_others_only_by_force(
    study: Path, tmp_path: Path, command: list[str], name: str
) -> None:
    words = [str(study) if word == "STUDY" else word for word in command]
    output = tmp_path / name
    assert invoke(*words, output).exit_code == 0
    assert invoke(*words, output).exit_code == 0
    for foreign in (
        b"my notes on sparsetoken\n",
        b"\x89PNG my photograph",
        b"<svg>a drawing of mine</svg>",
    ):
        output.write_bytes(foreign)
        result = invoke(*words, output)
        assert (result.exit_code, "--force" in result.output) == (2, True), result.output
        assert output.read_bytes() == foreign
    (tmp_path / "elsewhere").write_bytes(b"")
    output.unlink()
    output.symlink_to(tmp_path / "elsewhere")
    assert invoke(*words, output).exit_code == 0
    assert output.is_symlink()
    assert (tmp_path / "elsewhere").stat().st_size > 0
    output.write_bytes(b"my notes\n")
    assert invoke(*words, output, "--force").exit_code == 0
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        (["map", "--points", "2"], "csv", "plot"),
        (["map", "--points", "2"], "checkpoint", "csv"),
        (["plan", "--samples", "99"], "plot", "save"),
    ],
    ids=["csv and plot", "checkpoint and csv", "plot and save"],
)
def test_two_outputs_in_one_place_are_refused(
    tmp_path: Path, words: list[str], first: str, second: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    options = f"--{first}", tmp_path / "out.svg", f"--{second}", tmp_path / "link" / "out.svg"
    result = invoke(*words, *options)
    assert result.exit_code == 2
    assert f"another file than that of --{first}" in result.output
    assert not (tmp_path / "out.svg").exists()


def test_the_store_may_not_be_the_study(study: Path) -> None:
    result = invoke("sweep", "run", study, "--store", study)
    assert (result.exit_code, "is the study" in result.output) == (2, True)


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_paths_without_a_name_are_one_message(study: Path, path: str) -> None:
    for words in (["sweep", "run", path], ["sweep", "export", study, "--csv", path],
                  ["sweep", "status", study, "--store", path], [*CURVE, path]):  # fmt: skip
        result = invoke(*words)
        assert result.exit_code == 2, words
        assert isinstance(result.exception, SystemExit)


def test_brackets_in_a_path_are_part_of_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "out[bold]dir" / "r["
    folder.mkdir(parents=True)
    path = folder / "study[red].toml"
    path.write_text(STUDY)
    fill(path)
    output = folder / "b].csv"  # the whole path has a [/b]
    result = invoke("sweep", "export", path, "--csv", output)
    assert (result.exit_code, output.exists()) == (0, True), result.output
    assert "[/b]" in result.output
    path.with_suffix(".sqlite").rename(folder / "b].sqlite")
    result = invoke("sweep", "check", path, "--store", folder / "b].sqlite")
    assert result.exit_code == 0, result.output


def command(
    *arguments: str, shell: str = "", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own, with redirections of the shell."""
    words = shlex.join([sys.executable, "-m", "sparsetoken", *arguments])
    return subprocess.run(
        f"{words} {shell}",
        shell=True,
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["ascii", "C", "latin-1"],
)
def test_a_terminal_that_lacks_signs_loses_no_result(environment: dict[str, str]) -> None:
    done = command("predict", "--classifier", "pooled", "--tolerance", "0.01", **environment)
    assert done.returncode == 0, done.stderr
    assert b"test error" in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["align"], ["align", "--json"]])
def test_a_full_device_is_one_message(arguments: list[str]) -> None:
    done = command(*arguments, shell="> /dev/full")
    assert done.returncode == 2
    assert done.stderr.count(b"Error:") == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


MAP = ["map", "--points", "2", "--classifier", "pooled"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (CURVE, "a.svg"),
        ([*MAP, "--csv"], "a.csv"),
        ([*MAP, "--checkpoint"], "a.json"),
        ([*MAP, "--plot"], "a.png"),
        (["simulate", "--dimension", "10", "--trials", "2", "--csv"], "b.csv"),
        pytest.param(["explore", "--export"], "a.html", marks=pytest.mark.slow, id="explore"),
        (["sweep", "init"], "b.toml"),
        (["sweep", "run", "study.toml", "--store"], "other.sqlite"),
    ],
)
def test_a_file_without_room_is_named(
    words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        result = invoke(*words, name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code == 2, result.output
    assert re.search(rf"{name}(\.lock)? cannot be written: .", result.output), result.output
    assert {path.name for path in tmp_path.iterdir()} <= {"study.toml", f"{name}.lock"}


def test_closed_streams_and_an_unknown_backend_do_no_harm(tmp_path: Path) -> None:
    done = command("align", "--json", shell="2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["result"]["alignment"] > 0.9
    assert command("align", shell=">&-").returncode == 0
    picture = tmp_path / "a.png"
    done = command(*CURVE, str(picture), MPLBACKEND="nonsense")
    assert (done.returncode, picture.exists()) == (0, True), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["align", "--strength", "1e200"],
        ["predict", "--length", "9223372036854775808"],
        ["align", "--positive-rate", "1e-320"],
        ["oracle", "--over", "strength", "--points", "100000000000"],
        ["oracle", "--positive-rate", "1e-9", "--classifier", "elementwise", "--error", "1e-300"],
        ["simulate", "--workers", "20000"],
        ["simulate", "--workers", "100000000"],
        ["plan", "--dimension", "64", "--workers", "20000"],
        ["map", "--workers", "100000000"],
        ["map", "--points", "100000"],
        ["map", "--points", "2", "--y", "alpha", "1", "0"],
        ["map", "--points", "2", "--x", "strength", "1", "inf"],
        ["map", "--points", "2", "--x", "length", "2", "1e30"],
        ["simulate", "--dimension", "1000000000000"],
        ["simulate", "--trials", "100000000000000000000"],
        ["descend", "--dimension", "20", "--trials", "100000000000000000000"],
        ["descend", "--steps", "1000000000"],
        ["simulate", "--seed", "-1"],
    ],
    ids=" ".join,
)
def test_extreme_numbers_are_refused_by_name_at_once(words: list[str]) -> None:
    result = invoke(*words)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    named = words[-3] if words[0] == "map" and len(words) > 3 else words[-2]
    assert named.strip("-").replace("-", "_") in result.output.replace("-", "_")
