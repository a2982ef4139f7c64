import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparsetoken import Task, __version__
from sparsetoken.cli import main
from sparsetoken.cli.output import print_text

HEAVY = {"numpy", "scipy", "sklearn", "matplotlib", "pydantic", "rich", "distributed"}


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_lists_every_command_with_a_line(runner: CliRunner) -> None:
    result = runner.invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in main.commands:
        assert name in result.output
    assert runner.invoke(main, ["-h"]).output == result.output


def all_commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    for name, command in sorted(group.commands.items()):
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, *names, name)


@pytest.mark.parametrize("names", list(all_commands(main)), ids=" ".join)
def test_every_command_explains_itself_and_each_option(
    runner: CliRunner, names: tuple[str, ...]
) -> None:
    result = runner.invoke(main, [*names, "--help"])
    assert result.exit_code == 0
    command: click.Command = main
    for name in names:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert command.get_short_help_str().strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{parameter.opts[0]} has no help"


@pytest.mark.parametrize("names", [(), *all_commands(main)], ids=" ".join)
def test_help_fits_a_terminal_of_80_columns(runner: CliRunner, names: tuple[str, ...]) -> None:
    """Lines that a terminal would break, and descriptions that click would cut off."""
    text = runner.invoke(main, [*names, "--help"], terminal_width=80).output
    assert [line for line in text.splitlines() if len(line) > 80] == []
    listed = text.partition("\nCommands:\n")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


def test_the_explorer_without_its_extra_says_where_to_get_it(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = runner.invoke(main, ["explore"])
    assert result.exit_code == 2
    assert "needs the package plotly" in result.stderr
    assert "pip install '.[explorer]'" in result.stderr


def test_version(runner: CliRunner) -> None:
    assert (
        runner.invoke(main, ["--version"]).output.strip() == f"sparsetoken, version {__version__}"
    )
    assert run("-m", "sparsetoken", "--version").stdout.strip().endswith(__version__)


def test_help_imports_nothing_heavy() -> None:
    # What makes --help slow is what it imports; a time limit would only test the machine.
    program = (
        "import sys\n"
        "from sparsetoken.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))\n"
    )
    result = run("-c", program)
    assert result.returncode == 0, result.stderr
    assert "Plan a study:" in result.stdout
    assert result.stdout.strip().endswith("HEAVY []")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"]])
def test_a_wrong_call_is_one_message_and_exit_code_2(arguments: list[str]) -> None:
    result = run("-m", "sparsetoken", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert arguments[0] in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_cannot_be_used_is_one_message_and_exit_code_2(runner: CliRunner) -> None:
    @main.command("fails")
    def fails() -> None:
        raise FileNotFoundError(2, "No such file or directory", "gone.txt")

    try:
        result = runner.invoke(main, ["fails"])
    finally:
        del main.commands["fails"]
    assert (result.exit_code, result.output) == (2, "Error: gone.txt: No such file or directory\n")


def test_a_bad_parameter_in_any_command_is_one_message_and_exit_code_2(runner: CliRunner) -> None:
    @main.command("fails")
    def fails() -> None:
        Task(length=3, informative=3, strength=1.0)

    try:
        result = runner.invoke(main, ["fails"])
    finally:
        del main.commands["fails"]
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output.count("Error:") == 1
    assert "informative = 3 is not valid: expected an integer below length = 3" in result.output


def test_long_lines_break_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "  one two three four five"
    monkeypatch.setenv("COLUMNS", "20")
    print_text(text)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    print_text(text)
    assert capsys.readouterr().out == f"{text}\n  one two three four\n    five\n"
