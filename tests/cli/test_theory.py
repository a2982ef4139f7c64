import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparsetoken import Query, Task, Training, align, capacity, oracle, predict
from sparsetoken.cli import main
from sparsetoken.records import with_error
from sparsetoken.theory import limit


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_predict_prints_what_python_gives() -> None:
    found = json.loads(run("predict", "--classifier", "pooled", "--alpha1", "2", "--json"))
    expected = predict(Task(10, 1, 5.0), Training(4.0, 2.0), classifier="pooled")
    assert found["result"]["test_error"] == expected.test_error
    assert found["result"]["test_error_uncertainty"] == expected.uncertainty.test_error
    assert found["settings"]["alpha1"] == 2
    table = run("predict", "--classifier", "pooled", "--alpha1", "2")
    assert "test error" in table
    assert "±" in table


def test_a_given_query_and_a_shift() -> None:
    found = json.loads(
        run(
            "predict",
            "--alignment",
            "0.9",
            "--sharpness",
            "1",
            "--at-length",
            "20",
            "--tolerance",
            "0.01",
            "--json",
        )
    )
    expected = predict(
        Task(10, 1, 5.0),
        Training(4.0, 4.0),
        query=Query(0.9, 1.0),
        at=Task(20, 1, 5.0),
        tolerance=0.01,
    )
    assert found["result"]["test_error"] == expected.test_error
    assert found["settings"]["at_length"] == 20


@pytest.mark.parametrize("curve", [(), ("--over", "ridge", "--points", "2"), ("--metric", "roc")])
def test_a_table_says_of_which_settings_it_is(curve: tuple[str, ...]) -> None:
    command = ("predict", "--classifier", "pooled", "--at-length", "20", *curve)
    settings = " ".join(run(*command).split("Settings: ")[1].split())
    expected = Task(10, 1, 5.0).to_dict() | {"alpha1": 4.0, "loss": "logistic", "ridge": 1e-3}
    expected |= {f"at_{name}": value for name, value in Task(20, 1, 5.0).to_dict().items()}
    for name in curve[1:2]:
        expected.pop(name, None)
    shown = {name: f"{v:g}" if isinstance(v, float) else v for name, v in expected.items()}
    assert settings == ", ".join(f"{name.replace('_', ' ')} {v}" for name, v in shown.items())


@pytest.mark.parametrize("asked", [(), ("--error", "0.1")])
def test_an_oracle_says_of_which_nonlinearity_it_is(asked: tuple[str, ...]) -> None:
    command = ("oracle", "--classifier", "elementwise", "--nonlinearity", "exp", *asked)
    assert "nonlinearity exp" in " ".join(run(*command).split("Settings: ")[1].split())
    assert json.loads(run(*command, "--json"))["settings"]["nonlinearity"] == "exp"


def test_a_curve_as_table_json_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    curve = (
        "predict",
        "--classifier",
        "pooled",
        "--over",
        "alpha1",
        "--from",
        "0.5",
        "--to",
        "8",
        "--points",
        "3",
        "--log",
    )
    found = json.loads(run(*curve, "--json", "--plot", str(picture)))
    assert [row["alpha1"] for row in found["results"]] == pytest.approx([0.5, 2, 8])
    errors = [row["test_error"] for row in found["results"]]
    assert errors == sorted(errors, reverse=True)
    assert picture.read_text().startswith("<?xml")
    table = run(*curve)
    assert "alpha1" in table
    assert "0.5" in table


def test_help_says_which_options_are_about_the_test() -> None:
    words = " ".join(run("predict", "--help").split())
    assert "Signal strength (θ), at test time instead." in words


def test_infinite_numbers_are_valid_json() -> None:
    found = json.loads(
        run("predict", "--classifier", "pooled", "--ridge", "0", "--alpha1", "1", "--json")
    )
    assert found["result"]["susceptibility"] == "inf"
    assert found["result"]["margin"] > 0


def test_a_curve_along_which_nothing_changes_keeps_its_title() -> None:
    """The bias step does not matter to balanced labels: the table has one narrow column."""
    shown = CliRunner().invoke(main, ["align", "--over", "bias_step", "--points", "2"]).stdout
    assert shown.splitlines()[0].rstrip() == "attention"
    assert "At every point: alignment 0.97676" in shown


def test_align_capacity_and_oracle() -> None:
    task, training = Task(10, 1, 5.0), Training(4.0, 4.0, query_step=20.0)
    values = json.loads(run("align", "--json"))["result"]
    assert values["alignment"] == align(task, training).alignment
    values = json.loads(run("capacity", "--classifier", "vectorised", "--json"))["result"]
    assert values["alpha"] == capacity(task, classifier="vectorised").alpha
    values = json.loads(run("capacity", "--alignment", "1", "--sharpness", "0", "--json"))["result"]
    assert values["alignment"] == 1
    values = json.loads(run("oracle", "--classifier", "pooled", "--json"))["result"]
    assert values["test_error"] == oracle(task, classifier="pooled").test_error
    values = json.loads(run("oracle", "--classifier", "pooled", "--error", "0.1", "--json"))[
        "result"
    ]
    assert oracle(
        task.replace(strength=values["strength"]), classifier="pooled"
    ).test_error == pytest.approx(0.1, abs=1e-4)


def test_whole_number_fields_take_whole_values() -> None:
    found = json.loads(
        run(
            "oracle",
            "--classifier",
            "pooled",
            "--over",
            "length",
            "--from",
            "10",
            "--to",
            "1000",
            "--points",
            "3",
            "--log",
            "--json",
        )
    )
    assert [row["length"] for row in found["results"]] == [10, 100, 1000]


@pytest.mark.parametrize(
    ("over", "first", "last"),
    [("length", 2, 50), ("informative", 1, 9), ("positive_rate", 0.05, 0.95), ("alpha0", 0.2, 10)],
)
def test_a_curve_needs_no_ends(over: str, first: float, last: float) -> None:
    values = [row[over] for row in json.loads(run("align", "--over", over, "--json"))["results"]]
    assert (values[0], values[-1]) == (first, last)
    assert values == sorted(set(values))


def test_every_field_that_can_vary_matters() -> None:
    for command, fields in (
        (("align",), ("alpha0", "readout_step", "bias_step", "query_step", "strength")),
        (("oracle", "--classifier", "pooled"), ("strength", "length")),
    ):
        for over in fields:
            curve = run(
                *command, "--over", over, "--points", "2", "--json", "--positive-rate", "0.3"
            )
            rows = json.loads(curve)["results"]
            first, last = ({k: v for k, v in row.items() if k != over} for row in rows)
            assert first != last, over


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict", ["along", "across", "rest", "susceptibility"]),
        ("align", ["rate constant", "anti aligned"]),
        ("capacity", ["alpha "]),
    ],
)
def test_help_explains_the_words_of_the_table(command: str, words: list[str]) -> None:
    epilog = run(command, "--help").partition("Words in the table")[2]
    for word in words:
        assert f"  {word}" in epilog


def test_a_note_is_shown_when_a_point_is_special() -> None:
    arguments = (
        "predict",
        "--classifier",
        "pooled",
        "--length",
        "73",
        "--loss",
        "hinge",
        "--ridge",
        "0",
    )
    result = CliRunner().invoke(
        main,
        [
            *arguments,
            "--positive-rate",
            "0.04",
            "--over",
            "alpha1",
            "--from",
            "30",
            "--to",
            "38",
            "--points",
            "2",
        ],
    )
    assert result.exit_code == 0
    assert "note: converged, but the answer is not unique" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "--strength", "-1"], "strength = -1.0"),
        (["predict", "--loss", "zero-one"], "'hinge', 'logistic'"),
        (["predict", "--alignment", "0.5"], "alignment = 0.5 is not valid: expected it together with sharpness"),
        (["predict", "--sharpness", "1"], "--sharpness needs --alignment"),
        (["capacity", "--classifier", "pooled", "--alignment", ".5", "--sharpness", "1"], "which takes no query"),
        (["predict", "--at-informative", "10"], "at_informative = 10 is not valid"),
        (["predict", "--alignment", "1.5", "--sharpness", "1"], "alignment = 1.5"),
        (["predict", "--plot", "curve.svg"], "--over"),
        (["predict", "--from", "1"], "--from is for a curve: say which field varies with --over"),
        (["align", "--to", "0"], "--to is for a curve"),
        (["capacity", "--points", "3"], "--points is for a curve"),
        (["oracle", "--log"], "--log is for a curve"),
        (["predict", "--over", "colour"], "over = 'colour'"),
        (["predict", "--classifier", "pooled", "--over", "alpha0"], "over = 'alpha0'"),
        (["predict", "--over", "alignment"], "over = 'alignment'"),
        (["align", "--over", "alpha1"], "a field that matters here: length, informative,"),
        (["align", "--over", "ridge"], "over = 'ridge'"),
        (["capacity", "--over", "alpha1"], "over = 'alpha1'"),
        (["oracle", "--error", "0.1", "--over", "strength"], "matters here: length, informative, positive_rate"),
        (["align", "--over", "alpha0", "--to", "nan"], "to = nan"),
        (["predict", "--over", "alpha1", "--points", "1"], "points = 1"),
        (["predict", "--over", "alpha1", "--from", "0", "--log"], "numbers > 0 with --log"),
        (["predict", "--classifier", "pooled", "--over", "alpha1", "--points", "2", "--plot", "x.bmp"], "plot = 'x.bmp' is not valid: expected a file name"),
        (["align", "--over", "alpha0", "--plot", ""], "plot = '.' is not valid"),
        (["align", "--over", "alpha0", "--plot", "missing/x.png"], "the folder missing does not exist"),
        (["align", "--over", "alpha0", "--plot", "/proc/x.png"], "/proc/x.png cannot be written"),
        (["predict", "--classifier", "pooled", "--ridge", "0", "--loss", "square", "--alpha1", "1"], "threshold"),
        (["capacity", "--classifier", "bayes"], "classifier = 'bayes'"),
        (["oracle", "--error", "0.7"], "error = 0.7"),
    ],
)  # fmt: skip
def test_user_errors_give_one_message_and_exit_code_two(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_values_are_shown_with_the_digits_they_have() -> None:
    assert with_error(0.0416234, 5e-5) == "0.04162 ± 5e-05"
    assert with_error(17.4152, 0.05) == "17.42 ± 0.05"
    assert with_error(0.0, 2e-9) == "0 ± 2e-09"
    assert with_error(-1e-12, 2e-9) == "0 ± 2e-09"
    assert with_error(0.7e-9, 2e-9) == "0.000000001 ± 2e-09"
    assert with_error(3.21e-9, 2e-11) == "3.21e-09 ± 2e-11"
    assert with_error(0.123456789, 2e-9) == "0.123457 ± 2e-09"
    assert with_error(17.4000001, 1e-9) == "17.4000 ± 1e-09"
    assert with_error(1234567.8, 0.01) == "1234568 ± 0.01"
    assert with_error(12345.0, 30.0) == "12345 ± 3e+01"
    assert with_error(0.003, 0.2) == "0 ± 0.2"
    assert with_error(-0.0, None) == "0"
    assert with_error(-0.0, 0.0) == "0 (exact)"
    assert with_error(2.0, 0.0) == "2 (exact)"
    assert with_error(None, None) == "-"
    assert with_error(True, None) == "True"
    assert with_error(float("inf"), 0.1) == "inf"


def test_ctrl_c_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparsetoken.theory.predictor.predict", interrupted)
    result = CliRunner().invoke(main, ["predict"])
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_what_did_not_converge_has_no_error_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    carried_over = limit._carried_over

    def distrusted(*arguments: Any, **options: Any) -> Any:
        return replace(carried_over(*arguments, **options), trusted=False)

    monkeypatch.setattr(limit, "_carried_over", distrusted)
    result = CliRunner().invoke(main, ["predict", "--strength", "4", "--alpha1", "2"])
    assert result.exit_code == 0
    assert "± inf" in result.output
    assert "not converged" in result.output


def test_a_curve_tells_once_what_is_the_same_at_every_point_and_cuts_nothing_off() -> None:
    options = ("predict", "--over", "alpha1", "--from", "1", "--to", "4", "--points", "2")
    table = run(*options, "--tolerance", "0.01")
    assert "At every point: alignment 0.97676" in table
    assert table.count("0.97676") == 1
    assert "…" not in run(*options, "--tolerance", "0.01", "--metric", "auc")


@pytest.mark.parametrize("curve", [(), ("--over", "alpha1", "--points", "2")])
def test_an_anti_aligned_query_is_told(curve: tuple[str, ...]) -> None:
    options = ("predict", "--positive-rate", "0.05", "--tolerance", "0.01", *curve)
    assert "points away from the signal" in CliRunner().invoke(main, options).stderr
    assert "points away" not in CliRunner().invoke(main, ("align", *options[1:3])).stderr
