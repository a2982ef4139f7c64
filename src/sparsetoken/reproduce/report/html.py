"""The report: one HTML file with everything in it, readable on a phone and without a network."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparsetoken.plotting import describe
from sparsetoken.plotting.figures import COLUMN_WIDTH
from sparsetoken.reproduce.claim import Claim
from sparsetoken.reproduce.examination import Examination

__all__ = ["MAIN_CLAIM", "page"]

MAIN_CLAIM = 8

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; line-height: 1.25; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { text-align: left; padding: .35rem .5rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; background: white;
  border-radius: 4px; } figure.narrow img { max-width: 30rem; }
figure.broad { --least: calc(20rem * var(--panels)); position: relative; left: 50%;
  width: max(100%, min(var(--least), 100vw - 3rem)); transform: translateX(-50%); }
figure.broad img { min-width: var(--least); }
figcaption, .small { font-size: .85rem; }
.badge { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .85rem;
  font-weight: 600; color: white; }
.confirmed { background: #00785a; } .refuted { background: #b34a00; }
.undecided, .not-measured { background: #5c5c5c; } .broken { background: #000; outline: 1px solid #fff; }
code, pre { background: var(--soft); border-radius: 4px; padding: .1rem .3rem;
  overflow-wrap: anywhere; } pre { padding: .6rem; white-space: pre-wrap; }
blockquote { margin: 1rem 0; padding-left: 1rem; border-left: 4px solid var(--line); }
a { color: inherit; }
"""

_INTRODUCTION = """
<p>Each claim of <i>High-Dimensional Analysis of Single-Layer Attention for Sparse-Token
Classification</i> (arXiv 2509.25153), with what was seen when it was put to the test.</p>
"""

_QUESTIONS = """
<h2 id="questions">What the paper leaves open</h2>
<p>Questions that it does not answer, treated as its claims are: an answer is stated, with a
criterion, and the numbers decide whether it holds.</p>
"""

_METHOD = """
<p><b>Exact.</b> Lines are theory: the limit of a large dimension d with samples in proportion.
They come from the formula for the alignment after two steps, from the self-consistent equations for
test error and training loss, and from the capacity's minimisation. No parameter is fitted to
simulated data. Least errors with a known signal (claims 1 to 3) hold at any dimension.</p>
<p><b>Simulated.</b> Markers are trainings on data drawn from the task, through all stages, at the
finite d of the caption. They are drawn in a reduced form that has exactly the law of the full
(samples x tokens x dimension) array; the package's tests compare the two. The test error of a
trained classifier is integrated over the law of the data instead of counted on a test set. Errors
of claim 1 are counted on drawn sequences.</p>
<p><b>Uncertainty.</b> For theory it is the estimated numerical error of the integrals. For
simulation it is the standard error of the mean over independent trials. A distance from theory is
judged by its z-score; since the standard error of few trials is itself uncertain, Student's
distribution is used, and expressed as the normal deviate of the same probability. At a finite d the
mean differs from the limit by a shift of order 1/d; trials at d and d/4 measure it, and it is
removed before the comparison. Every comparison says which common deviation of all its points it
would notice, and is open if that is more than 1 % (3 % in the quick version).</p>
<p><b>Verdicts.</b> Each claim has a criterion, stated in its module and the same for every run,
and made of conditions. A condition holds or fails if twice the uncertainty lies on one side of its bound,
and is open otherwise. A claim is <i>confirmed</i> if all conditions hold, <i>refuted</i> if one fails,
and <i>undecided</i> if none fails but one is open. <i>Broken</i> means that the computation itself
failed, <i>not measured</i> that an optional package was missing. Nobody sets a verdict by hand.</p>
<p><b>Seeds.</b> A trial's random numbers depend on the seed, its settings and its number alone, so
that every number here can be made again.</p>
"""


def page(
    findings: Sequence[Examination], pictures: Mapping[str, str], run: Mapping[str, Any]
) -> str:
    """Return the report as the text of an HTML file.

    Parameters
    ----------
    findings : sequence of Examination
    pictures : mapping
        Text of the SVG of each figure, by the stem of its file name.
    run : mapping
        What the run depends on: command, profile, seed and versions.
    """
    body = [
        "<h1>The claims about attention and sparse tokens, measured</h1>",
        _INTRODUCTION,
        _overview(findings),
        _main_figure(findings, pictures),
        *_sections(findings, pictures, run),
        '<h2 id="method">Method</h2>',
        _METHOD,
        _provenance(run),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>sparsetoken: claims and verdicts</title>\n<style>{_STYLE}</style>\n</head>\n"
        "<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _sections(
    findings: Sequence[Examination], pictures: Mapping[str, str], run: Mapping[str, Any]
) -> list[str]:
    """Return all sections, with a heading where the questions begin."""
    claims = [finding for finding in findings if finding.claim.series == "claim"]
    questions = [finding for finding in findings if finding.claim.series == "question"]
    heading = [_QUESTIONS] if questions else []
    made = [[_section(one, pictures, run) for one in part] for part in (claims, questions)]
    return [*made[0], *heading, *made[1]]


def _badge(finding: Examination) -> str:
    name = finding.ruling.replace(" ", "-")
    return f'<span class="badge {name}">{finding.ruling}</span>'


def _anchor(finding: Examination) -> str:
    return f"{finding.claim.series}-{finding.claim.number}"


def _overview(findings: Sequence[Examination]) -> str:
    rows = "\n".join(
        f'<tr><td class="number">{finding.claim.short}</td>'
        f'<td><a href="#{_anchor(finding)}">{escape(finding.claim.title)}</a></td>'
        f"<td>{_badge(finding)}</td></tr>"
        for finding in findings
    )
    return (
        f"<table><thead><tr><th></th><th>claim</th><th>verdict</th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>\n"
        '<p class="small">How these are reached: <a href="#method">method</a>.</p>'
    )


def _main_figure(findings: Sequence[Examination], pictures: Mapping[str, str]) -> str:
    drawn = [finding for finding in findings if finding.drawings]
    main = [finding for finding in drawn if finding.claim.number == MAIN_CLAIM] or drawn
    if not main:
        return ""
    return _figure(main[0], next(iter(main[0].drawings or {})), pictures)


def _figure(finding: Examination, name: str, pictures: Mapping[str, str]) -> str:
    drawing = (finding.drawings or {})[name]
    data = base64.b64encode(pictures[f"{finding.claim.stem}-{name}"].encode()).decode()
    caption = escape(drawing.caption)
    panels = round(drawing.figure.get_figwidth() / COLUMN_WIDTH)
    # Panels side by side stay readable on a phone: they scroll.
    shape = '"narrow"' if panels == 1 else f'"broad" style="--panels: {panels}"'
    return (
        f'<figure class={shape}><div class="wide"><img alt="{caption}" '
        f'src="data:image/svg+xml;base64,{data}"></div><figcaption>{caption}</figcaption></figure>'
    )


def _section(finding: Examination, pictures: Mapping[str, str], run: Mapping[str, Any]) -> str:
    claim, verdict = finding.claim, finding.verdict
    parts = [
        f'<h2 id="{_anchor(finding)}">{claim.short}. {escape(claim.title)} {_badge(finding)}</h2>',
        f"<blockquote>{escape(claim.statement)}</blockquote>",
        f"<p>{escape(claim.meaning)}</p>",
        *(_figure(finding, name, pictures) for name in finding.drawings or {}),
        f"<p><b>Criterion.</b> {escape(claim.criterion)}</p>",
        f"<p><b>Seen.</b> {escape(verdict.seen if verdict else str(finding.error))}.</p>",
    ]
    if verdict and verdict.numbers:
        rows = "\n".join(
            f'<tr><td>{escape(name)}</td><td class="number">{escape(str(quantity))}</td></tr>'
            for name, quantity in verdict.numbers.items()
        )
        parts.append(
            '<div class="wide"><table><thead><tr><th>number</th><th>value ± uncertainty</th></tr>'
            f"</thead>\n<tbody>\n{rows}\n</tbody></table></div>"
        )
    parts.append(
        f"<details class='small'><summary>All settings</summary><p>"
        f"{escape(describe(finding.settings))}</p></details>"
        f"<p class='small'>Just this one: <code>{escape(_alone(claim, run['command']))}</code></p>"
    )
    return "\n".join(parts)


def _alone(claim: Claim, command: str) -> str:
    """Return the command that measures one claim of a run: its number, and the run's options."""
    words = command.split()
    places = [place for place, word in enumerate(words) if word.startswith("--")]
    options = [word for word in words[min(places, default=len(words)) :] if word != "--questions"]
    return " ".join(["sparsetoken reproduce", claim.short, *options])


def _provenance(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    return (
        f"<p><b>This run.</b> <code>{escape(run['command'])}</code>, profile "
        f"{escape(run['profile'])}, seed {run['seed']}; {escape(versions)}.</p>"
    )
