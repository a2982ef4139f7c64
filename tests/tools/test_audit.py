"""A small seeded part of `make audit`, and proof that the audit notices what is wrong."""

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

PATH = Path(__file__).parents[2] / "tools" / "audit.py"
SPEC = importlib.util.spec_from_file_location("audit", PATH)
assert SPEC is not None
assert SPEC.loader is not None
audit = importlib.util.module_from_spec(SPEC)
sys.modules["audit"] = audit
SPEC.loader.exec_module(audit)

TASK = {"length": 6, "informative": 1, "strength": 4.0, "positive_rate": 0.5}
TRAINING = {"alpha0": 3.0, "alpha1": 2.0, "ridge": 0.05, "query_step": 20.0}


def setting(
    loss: str = "logistic", classifier: str = "attention", reuse: bool = False, **query: float
) -> Any:
    training = {**TRAINING, "loss": loss}
    if reuse:
        training |= {"alpha0": TRAINING["alpha1"], "reuse": True}
    return audit.Setting(TASK, training, classifier, query or None, dimension=80, trials=10)


@pytest.mark.parametrize(
    "chosen",
    [
        setting(),
        setting("square", "vectorised"),
        setting("squared_hinge", "pooled"),
        setting("hinge", alignment=0.7, sharpness=1.0),
    ],
    ids=["logistic", "square", "squared_hinge", "hinge"],
)
def test_theory_is_what_plain_arrays_and_independent_fits_give(chosen: Any) -> None:
    # Two to six scores each: |z| < 4 fails by chance once in 16,000 scores. With 10 trials the
    # test error's relative standard error is about 3 %, so that 12 % would be noticed.
    scores = audit.audit_setting(chosen, np.random.default_rng(11))
    assert {"test_error", "train_loss", "auc"} <= set(scores)
    learnt = chosen.classifier == "attention" and chosen.query is None
    assert learnt == ({"alignment", "sharpness", "readout_cosine"} <= set(scores))
    assert max(abs(score.z) for score in scores.values()) < 4, scores


def test_training_without_a_split_is_what_plain_arrays_give() -> None:
    # As above; a deviation of 20 % of the training loss would be noticed.
    scores = audit.audit_setting(setting(reuse=True), np.random.default_rng(15))
    assert {f"no split: {name}" for name in ("test_error", "train_loss", "auc")} <= set(scores)
    assert max(abs(score.z) for score in scores.values()) < 4, scores


def test_margins_agree_with_support_vector_machines() -> None:
    # 8 trials leave 1 to 2 % of the margin, so that 8 % would be noticed.
    _, scores = audit.audit_margin(np.random.default_rng(16), dimension=80, trials=8)
    assert set(scores) == {"widest margin: margin", "widest margin: test_error"}
    assert max(abs(score.z) for score in scores.values()) < 4, scores


def test_message_passing_reaches_the_floor_and_training_stays_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, scores = audit.audit_floor(np.random.default_rng(17), dimension=120, trials=8)
    assert set(scores) == {
        "floor: overlap",
        "floor: test_error",
        "floor: trained classifier below it",
    }
    assert max(abs(score.z) for score in scores.values()) < 4, scores
    # A floor of fewer samples is too high: message passing is below it.
    true = audit.floor
    monkeypatch.setattr(audit, "floor", lambda task, alpha, **more: true(task, alpha / 4, **more))
    _, scores = audit.audit_floor(np.random.default_rng(17), dimension=120, trials=8)
    assert scores["floor: overlap"].z > 4


def test_a_theory_of_another_problem_is_noticed() -> None:
    chosen = setting(alignment=0.7, sharpness=1.0)
    weaker = replace(chosen, task={**TASK, "strength": 3.0})
    wrong = audit.theory_of(weaker)
    rng = np.random.default_rng(12)
    seen = {d: [audit.one_trial(chosen, d, rng) for _ in range(10)] for d in (80, 20)}
    for name in ("test_error", "train_loss"):
        values = {d: np.array([one[name] for one in runs]) for d, runs in seen.items()}
        assert abs(audit.compare(values, *wrong[name]).z) > 4


def test_capacity_agrees_with_linear_programs() -> None:
    _, score = audit.audit_capacity(np.random.default_rng(13), trials=6)
    assert abs(score.z) < 4


def test_joint_descent_agrees_with_gradients_written_out() -> None:
    _, scores = audit.audit_descent(np.random.default_rng(14), dimension=80, trials=10)
    assert len(scores) == 5
    assert max(abs(score.z) for score in scores.values()) < 4, scores


def rows(scores: Any, resolution: float = 0.05) -> list[dict[str, Any]]:
    return [{"scores": {"test_error": (float(z), resolution)}} for z in scores]


def test_the_table_passes_chance_and_fails_all_else() -> None:
    chance = np.random.default_rng(1).standard_normal(100)
    assert audit.summarise(rows(chance))[0]["failed"] == []
    assert audit.summarise(rows(chance + 0.5))[0]["failed"] == ["mean"]
    assert "mean square" in audit.summarise(rows(1.6 * chance))[0]["failed"]
    assert audit.summarise(rows([*chance, 5.5]))[0]["failed"] == ["largest"]
    assert "not chance: mean" in audit.show(audit.summarise(rows(chance + 0.5)))


def test_chance_fails_a_whole_audit_once_in_a_hundred() -> None:
    # 400 audits of 25 quantities: 4 failures expected, 13 or more once in 3,000 times. Bounds of
    # 1 in 1,000 for each test would fail 29 of them.
    rng = np.random.default_rng(2)
    failures = 0
    for _ in range(400):
        scores = [
            {f"q{k}": (z, 0.1) for k, z in enumerate(rng.standard_normal(25))} for _ in "12345678"
        ]
        table = audit.summarise([{"scores": one} for one in scores])
        failures += any(row["failed"] for row in table)
    assert 0 < failures < 13


def test_the_deviation_that_the_table_says_is_noticed() -> None:
    chance = np.random.default_rng(3).standard_normal((200, 60))
    notices = audit.summarise(rows(chance[0]))[0]["notices"]

    def failures(deviation: float) -> int:
        moved = chance + deviation / 0.05
        return sum("mean" in audit.summarise(rows(one))[0]["failed"] for one in moved)

    # 95 % of 200 are 190; a deviation of half the size is noticed in few.
    assert 180 <= failures(notices) <= 198
    assert failures(notices / 2) < 60


def test_an_audit_stops_in_time_resumes_and_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit-5.jsonl"
    path.write_text(json.dumps({"seed": 5, "settings": 3}) + "\n")
    asked: list[int] = []

    def quick(_: Any, rng: np.random.Generator) -> dict[str, Any]:
        asked.append(1)
        return {"test_error": audit.Score(float(rng.standard_normal()), 0.1)}

    monkeypatch.setattr(audit, "audit_setting", quick)
    assert audit.unfinished(tmp_path) == (path, 5, 3)
    assert audit.run(path, 5, 3, deadline=time.monotonic() - 1) == []
    first = audit.run(path, 5, 2, deadline=time.monotonic() + 60)
    # A process that is killed may leave half a line.
    path.write_text(path.read_text() + '{"number": 2, "sc')
    monkeypatch.setattr(
        audit, "audit_descent", lambda _: ({}, {"descent: bias": audit.Score(0.1, 0.1)})
    )
    again = audit.run(path, 5, 3, deadline=time.monotonic() + 60)
    assert audit.summarise(again[:2]) == audit.summarise(first)
    assert len(asked) == 2, "two settings and one descent"
    assert audit.unfinished(tmp_path) is None
    assert len(audit.read_rows(path)) == 3


def test_a_page_shows_the_last_audit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.md"
    page.write_text(f"# What it is\n\n{audit.HEADING}\n\nan older table\n")
    monkeypatch.setattr(audit, "audit_one", lambda *_: ({}, {"capacity": audit.Score(0.3, 0.02)}))
    options = ["--folder", str(tmp_path), "--seed", "4", "--page", str(page)]
    monkeypatch.setattr(sys, "argv", ["audit", "--settings", "2", *options, "--minutes", "-1"])
    assert audit.main() == 0
    assert "an older table" in page.read_text(), "an unfinished audit changes no page"
    monkeypatch.setattr(sys, "argv", ["audit", "--settings", "2", *options])
    assert audit.main() == 0
    printed = capsys.readouterr().out.split("goes on.\n")[1]
    assert page.read_text() == f"# What it is\n\n{audit.HEADING}\n\n{printed[:-1]}"
    assert "2 of 2 settings" in printed
    assert "| capacity | 2 | 0.30" in printed


def test_it_shares_no_code_with_simulation_or_learning() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(PATH.parent)!r}); import audit; "
        "sys.exit(any(name.startswith(('sparsetoken.simulation', 'sparsetoken.learning')) "
        "for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_few_samples_have_both_labels() -> None:
    # Of three samples a quarter would have one label, which no solver fits.
    signal, rng = np.eye(5)[0], np.random.default_rng(0)
    task = audit.Task(**TASK)
    assert all(len(set(audit.sequences(task, 3, signal, rng)[1])) == 2 for _ in range(100))
