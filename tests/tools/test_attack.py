"""A few hundred cheap attempts to break the package; `make attack` makes many more."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsetoken

TOOLS = Path(__file__).parents[2] / "tools"
ATTACK = TOOLS / "attack.py"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every public function with sound arguments."""
    folder = tmp_path_factory.mktemp("calls")
    known = runpy.run_path(str(TOOLS / "attack_calls.py"))
    (folder / "study.toml").write_text(known["STUDY"])
    found = {name: (call, given) for name, call, given in known["public_calls"](folder)}
    public = {n for n in sparsetoken.__all__ if inspect.isfunction(getattr(sparsetoken, n))}
    assert public - known["LEFT_OUT"] <= found.keys()
    return found


def test_the_arguments_that_are_spoilt_are_sound(
    calls: dict[str, tuple[Any, dict[str, Any]]],
) -> None:
    """None is refused as it is, so that a refusal is that of the one argument that was spoilt."""
    refused = {}
    for name, (call, arguments) in calls.items():
        try:
            if name in ("plan", "forecast", "diagnose", "compare"):  # these take seconds
                inspect.signature(call).bind(**arguments)
            else:
                call(**arguments)
        except Exception as error:  # noqa: BLE001
            refused[name] = repr(error)
    assert refused == {}
    assert len(calls) > len(inspect.getmembers(sparsetoken, inspect.isfunction))


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("run_sweep", "executor", 3),
        ("run_sweep", "study", 1j),
        ("run_cells", "function", 3),
        ("run_cells", "theory", -1),
        ("run_cells", "theory", {}),
        ("simulate_descent", "dimension", 10**30),
        ("simulate_joint", "dimension", 10**30),
        ("plot_attention", "positions", [1, 2, 3]),
        ("plot_attention", "axes", 3),
        ("check_loss", "loss", "square"),
        ("check_loss", "margins", np.zeros((2, 2))),
        ("curve", "query", 0.5),
        ("curve", "over", 3),
        ("compare", "scoring", {}),
        ("compare", "cv", 61),
        ("train", "training", 3),
        ("train", "query_data", 2),
        ("train", "readout_data", {"a": 1}),
        ("separability", "max_steps", -1),
        ("simulate_message_passing", "alpha", 10**30),
        ("run_trial", "threads", [1.0, 2.0]),
        ("free_response_curve", "scores", np.zeros((60, 3, 2))),
        ("AttentionClassifier().fit", "heads", 10**30),
    ],
)
def test_what_attacks_have_found_is_refused_by_name(
    calls: dict[str, tuple[Any, dict[str, Any]]], name: str, parameter: str, value: Any
) -> None:
    call, arguments = calls[name]
    with pytest.raises(sparsetoken.ParameterError, match=parameter.partition("_")[0]):
        call(**{**arguments, parameter: value})


@pytest.mark.slow
def test_nothing_breaks_in_the_quick_attack(tmp_path: Path) -> None:
    # Into a file: idle workers of what was attacked may outlive the attack, and keep a pipe open.
    printed = tmp_path / "printed.txt"
    with printed.open("w") as file:
        done = subprocess.run(
            [sys.executable, ATTACK, "--quick", "--seed", "1"],
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, printed.read_text()
    assert "| commands | 60 | 0 |" in printed.read_text()


@pytest.mark.slow
def test_the_attack_notices_what_breaks(tmp_path: Path) -> None:
    """Break a command, a store and an inequality on purpose."""
    program = f"""
import runpy, random
from pathlib import Path
attack = runpy.run_path({str(ATTACK)!r})
folder = Path({str(tmp_path)!r})
import sparsetoken.cli.theory, sparsetoken.sweeps.store, sparsetoken, sparsetoken.theory.oracle
from sparsetoken.cli import main
import click

def broken(*_, **__):
    raise KeyError("broken")
for command in main.commands.values():
    if not isinstance(command, click.Group):
        command.callback = broken
found = [attack["commands"](random.Random(n), folder) for n in range(60)]
assert any(text and "KeyError" in text for text in found), found

sparsetoken.sweeps.store.seal_of = lambda identity: lambda table, values: Everything()
class Everything:
    __hash__ = None
    def __eq__(self, other): return True
    def __ne__(self, other): return False
found = []
for n in range(400):
    try:
        found.append(attack["stores"](random.Random(n), folder))
    except Exception as error:
        found.append(repr(error))
assert any(found), found
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_every_kind_has_a_share_and_a_quick_part() -> None:
    attack = runpy.run_path(str(ATTACK))
    assert attack["KINDS"].keys() == attack["SHARE"].keys() == attack["QUICK"].keys()
