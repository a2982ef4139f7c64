"""The claim of docs/extending.md, added from outside, goes through the command with its workers."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sparsetoken.reproduce import Claim, claims, register_claim, unregister_claim
from sparsetoken.validation import ParameterError

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (example,) = [
        block
        for block in re.findall(
            r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
        )
        if "register_claim(" in block
    ]
    (folder / "my_claims.py").write_text(example)
    command = [sys.executable, "-m", "sparsetoken", "reproduce", "101", "--import", "my_claims"]
    return subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_claim_from_outside_is_measured_judged_and_reported(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick", "--output", "here")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((tmp_path / "here" / "verdicts.json").read_text())["claims"]
    assert (entry["claim"], entry["verdict"]) == (101, "confirmed"), entry["seen"]
    assert entry["numbers"]["hit rate at the weakest signal"]["value"] < 0.5
    assert all((tmp_path / "here" / name).is_file() for name in entry["figures"])
    command = "sparsetoken reproduce 101 --quick --import my_claims"
    assert json.loads((tmp_path / "here" / "verdicts.json").read_text())["command"] == command
    report = (tmp_path / "here" / "report.html").read_text()
    assert report.count(f"<code>{command}</code>") == 2, "of the run, and of just this claim"


def test_its_numbers_must_be_free_and_its_name_fit_for_files() -> None:
    taken = claims()[0]
    with pytest.raises(ParameterError, match=r"claim\.number = 1 "):
        register_claim(taken)
    with pytest.raises(ParameterError, match=r"claim\.name"):
        register_claim(replace(taken, number=101, name="../x"))
    own = replace(taken, number=101)
    register_claim(own)
    try:
        assert claims()[-1] is own
        with pytest.raises(ParameterError, match="such as 102"):
            register_claim(own)
    finally:
        unregister_claim(own)
    assert own not in claims()
    with pytest.raises(ParameterError, match="one that was registered"):
        unregister_claim(own)
    with pytest.raises(ParameterError, match="Claim"):
        register_claim("a claim")  # type: ignore[arg-type]
    assert isinstance(taken, Claim)
