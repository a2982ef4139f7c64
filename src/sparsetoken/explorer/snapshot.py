"""A page of one state that needs no server: for slides and papers."""

import html
import json
import re
from pathlib import Path

from sparsetoken import __version__
from sparsetoken.explorer.looks import line_looks
from sparsetoken.explorer.picture import pieces
from sparsetoken.explorer.server import page_file, plotly_script
from sparsetoken.explorer.state import QUANTITIES, VIEWS, State, field_title
from sparsetoken.explorer.texts import as_python
from sparsetoken.explorer.views import FINAL
from sparsetoken.files import write_text
from sparsetoken.plotting import describe

__all__ = ["write_snapshot"]

# The page asks for nothing, and sends nothing.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)

_SHOW = """
const pieces = JSON.parse(document.getElementById("pieces").textContent);
const labels = JSON.parse(document.getElementById("labels").textContent);
drawAs(JSON.parse(document.getElementById("looks").textContent));
const find = (kind) => pieces.find((piece) => piece.kind === kind);
const lines = pieces.filter((piece) => piece.kind === "line");
lines.sort((a, b) => (a.pin ?? -1) - (b.pin ?? -1) || orderOf(a.name) - orderOf(b.name));
const here = find("numbers")?.rows[0]?.x ?? null;
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const dark = scheme.matches;
  const made = find("tokens") ? tokensFigure(find("tokens"), dark)
    : find("map") ? mapFigure({ ...find("map"), ...labels }, dark)
    : linesFigure({ lines, dots: [], here, ...labels }, dark);
  put(document.getElementById("plot"), made);
}
document.getElementById("said").textContent = find("tokens") ? tokensWords(find("tokens"))
  : find("map") ? `Theory in the limit of high dimension. ${mapWords(find("map"), labels.diverging)}`
  : "Lines: theory in the limit of high dimension, with bands of numerical error.";
scheme.addEventListener("change", draw);
draw();
"""


def write_snapshot(state: State, path: Path) -> None:
    """Compute the view at the default accuracy and write it as one self-contained HTML file."""
    answer = list(pieces(state, FINAL, lambda: None))
    second = state.view in ("map", "turning")
    labels = {
        "xTitle": field_title(state.over),
        "yTitle": field_title(state.second) if second else QUANTITIES[state.quantity],
        "quantity": QUANTITIES[state.quantity],
        "diverging": state.view == "turning",
        "logX": state.logarithmic,
        "logY": state.logarithmic_y,
    }
    drawing = page_file("plots.js").replace("\nexport ", "\n")  # here it is no module
    script = plotly_script().replace("</script", "<\\/script")
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>sparsetoken: {html.escape(VIEWS[state.view].title)}</title>
<style>{page_file("style.css")}
main {{ grid-template-columns: minmax(0, 1fr); }}</style>
<script>{script}</script></head>
<body><main><section class="stage">
<h2>{html.escape(VIEWS[state.view].question)}</h2>
<div id="plot" role="figure" aria-label="{html.escape(VIEWS[state.view].title)}"></div>
<p>{_subscripted(html.escape(describe(state.settings())))}. <span id="said"></span>
Made by sparsetoken {html.escape(__version__)}.</p>
<pre>{html.escape(as_python(state))}</pre>
</section></main>
<script type="application/json" id="pieces">{_inline(answer)}</script>
<script type="application/json" id="labels">{_inline(labels)}</script>
<script type="application/json" id="looks">{_inline(line_looks())}</script>
<script>{drawing}{_SHOW}</script>
</body></html>
"""
    write_text(path, text)


def _subscripted(text: str) -> str:
    """Return symbols such as η_w with their index below the line."""
    return re.sub(r"([α-ω])_(\w)", r"\1<sub>\2</sub>", text)


def _inline(value: object) -> str:
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")
