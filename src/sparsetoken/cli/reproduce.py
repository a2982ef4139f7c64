"""`sparsetoken reproduce`."""

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparsetoken.cli.options import import_option, json_option, workers_option
from sparsetoken.cli.output import (
    Refusal,
    check_writable,
    force_option,
    is_our_page,
    refuse_unread_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from sparsetoken.reproduce.claim import Claim
    from sparsetoken.reproduce.examination import Examination

__all__ = ["reproduce"]

COLOURS = {
    "confirmed": "green",
    "refuted": "red",
    "undecided": "yellow",
    "not measured": "yellow",
    "broken": "reverse red",
}


@click.command(short_help="Measure, draw and judge the paper's claims.")
@click.argument("numbers", nargs=-1)
@click.option("--quick", is_flag=True, help="Smaller dimensions and fewer trials: a few minutes.")
@click.option("--questions", is_flag=True, help="Only the questions that the paper leaves open.")
@click.option(
    "--list",
    "only_list",
    is_flag=True,
    help="Only show the claims and questions; with NUMBERS what each says and what would show it.",
)
@import_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report, figures, numbers and verdicts; by default one for each choice of "
    "claims, in reproduction.",
)
@workers_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the simulation.",
)
@force_option
@json_option
def reproduce(
    numbers: tuple[str, ...],
    quick: bool,
    questions: bool,
    only_list: bool,
    output: Path | None,
    workers: int,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Measure, draw and judge the paper's claims and the questions that it leaves open.

    All of them, or those with these NUMBERS: 5 is a claim, Q5 a question. A run that was stopped
    goes on where it stopped, if the output folder is the same. The exit code is 0 if everything
    ran, whatever the verdicts.
    """
    from rich.console import Console

    console = Console(stderr=as_json)
    chosen = _choose(numbers, questions)
    if only_list:
        refuse_unread_options(
            ("quick", "output", "workers", "seed", "force"), "--list runs nothing"
        )
        _show_list(chosen, as_json, bool(numbers), console)
        return
    from sparsetoken.extensions import imported_extensions
    from sparsetoken.reproduce.report import write_results

    profile = "quick" if quick else "full"
    output = output or _usual_folder(profile, numbers, questions)
    output.mkdir(parents=True, exist_ok=True)
    check_writable(output / "report.html", is_our_page, force=force)
    check_writable(output / "verdicts.json", _are_verdicts, force=force)
    options = [*(["--questions"] if questions else []), *(["--quick"] if quick else [])]
    options += [f"--seed {seed}"] if seed else []
    options += [f"--import {name}" for name in imported_extensions()]
    with _alone_in(output):
        findings = _examine_all(chosen, profile, seed, output, workers, console)
        command = " ".join(["sparsetoken reproduce", *numbers, *options])
        report = write_results(findings, output, profile, seed, command)
        verdicts = (output / "verdicts.json").read_text(encoding="utf-8")
    _show_verdicts(findings, console)
    console.print(f"Report: {report}", soft_wrap=True, markup=False)
    if as_json:
        click.echo(verdicts, nl=False)
    _tell_gaps(findings)
    if any(finding.error for finding in findings):
        raise SystemExit(1)


def _usual_folder(profile: str, numbers: tuple[str, ...], questions: bool) -> Path:
    """Return a folder for what was chosen: some claims must not replace the report of all."""
    name = "-".join(["claims", *numbers]) if numbers else "questions" if questions else "all"
    return Path("reproduction") / profile / name


def _tell_gaps(findings: "Sequence[Examination]") -> None:
    """Say which claims were not measured, and then which ones broke."""
    names = [f"{one.claim.series.capitalize()} {one.claim.short}" for one in findings]
    for name, finding in zip(names, findings, strict=True):
        if finding.ruling == "not measured" and finding.verdict:
            click.echo(f"{name} was {finding.verdict.seen}", err=True)
    for name, finding in zip(names, findings, strict=True):
        if finding.error:
            click.echo(f"{name} broke: {finding.error}", err=True)


def _are_verdicts(content: bytes) -> bool:
    return b'"command": "sparsetoken reproduce' in content[:100]


@contextmanager
def _alone_in(folder: Path) -> "Iterator[None]":
    """Refuse a folder in which another reproduction is running: they share stores and results."""
    from sparsetoken.files import FileLock, LockTaken

    try:
        lock = FileLock(folder / ".lock")
    except LockTaken:
        raise Refusal(
            f"another reproduction is running in {folder}: wait for it, or name another folder "
            "with --output"
        ) from None
    with lock:
        yield


def _choose(numbers: tuple[str, ...], questions: bool) -> "list[Claim]":
    """Return the claims and questions that the command line names."""
    from sparsetoken.reproduce.registry import claims, select_claims
    from sparsetoken.validation import ParameterError

    if questions and numbers:
        accepted = "no NUMBERS with --questions; Q5 alone names a question"
        raise ParameterError("numbers", " ".join(numbers), accepted)
    if not numbers:
        return [*([] if questions else claims("claim")), *claims("question")]
    wanted: dict[str, list[int]] = {"claim": [], "question": []}
    for text in numbers:
        digits = text.removeprefix("Q").removeprefix("q")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise ParameterError(
                "claim", text, "the number of a claim, or Q and that of a question"
            )
        wanted["claim" if digits == text else "question"].append(int(digits))
    found: list[Claim] = []
    if wanted["claim"]:
        try:
            found += select_claims(wanted["claim"])
        except ParameterError as error:
            accepted = f"{error.accepted}, or Q and the number of a question"
            raise ParameterError("claim", error.value, accepted) from None
    if wanted["question"]:
        found += select_claims(wanted["question"], "question")
    return found


def _examine_all(
    chosen: "Sequence[Claim]",
    profile: str,
    seed: int,
    output: Path,
    workers: int,
    console: "Console",
) -> "list[Examination]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sparsetoken.reproduce.examination import examine, settings_of
    from sparsetoken.sweeps import LocalExecutor

    findings = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    pool = LocalExecutor(workers)
    try:
        with Progress(*columns, console=console, transient=True) as bars:
            for place, claim in enumerate(chosen, start=1):
                name = f"{claim.series} {claim.short}"
                bar = bars.add_task(f"[{place}/{len(chosen)}] {name}: {claim.name}")

                def show(done: int, total: int, bar: "object" = bar) -> None:
                    bars.update(bar, completed=done, total=total)  # type: ignore[arg-type]

                settings = settings_of(claim, profile, seed)
                finding = examine(
                    claim,
                    settings,
                    output / "store",
                    workers=workers,
                    executor=pool,
                    progress=show,
                )
                bars.remove_task(bar)
                line = f"{name:<11}  {finding.ruling:<10} {finding.seconds:6.1f} s"
                console.print(f"{line}  {claim.title}", soft_wrap=True, markup=False)
                findings.append(finding)
    except KeyboardInterrupt:
        pool.shutdown(cancel_futures=True)
        click.echo("Stopped. The same command goes on from here.", err=True)
        raise SystemExit(130) from None
    pool.shutdown()
    return findings


def _show_list(
    chosen: "Sequence[Claim]", as_json: bool, in_detail: bool, console: "Console"
) -> None:
    from rich.table import Table

    if as_json:
        names = ("series", "number", "title", "statement", "meaning", "criterion")
        entries = [{name: getattr(claim, name) for name in names} for claim in chosen]
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    if not in_detail:
        for claim in chosen:
            console.print(f"{claim.short:>3}  {claim.title}", soft_wrap=True, markup=False)
        click.echo("What one says, and what would show it: sparsetoken reproduce NUMBER --list")
        return
    table = Table("", "claim", "criterion", show_lines=True)
    for claim in chosen:
        table.add_row(claim.short, claim.statement, claim.criterion)
    console.print(table)


def _show_verdicts(findings: "Sequence[Examination]", console: "Console") -> None:
    from rich.table import Table

    table = Table("", "claim", "verdict", title="Verdicts")
    for finding in findings:
        colour = COLOURS[finding.ruling]
        table.add_row(
            finding.claim.short, finding.claim.title, f"[{colour}]{finding.ruling}[/{colour}]"
        )
    console.print(table)
