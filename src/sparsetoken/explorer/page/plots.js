// Figures: theory as lines with error bands, simulation as markers with error bars.

// Label, colour, symbol and dash of each line by its name, as the server tells them.
let looks = {};

export function drawAs(told) {
  looks = told;
}

// In which order lines are listed.
export const orderOf = (name) => [...Object.keys(looks), name].indexOf(name);

export const lookOf = (name) => looks[name] ?? { label: name.replaceAll("_", " "), colour: "#666666", symbol: "diamond", dash: "dot" };

// Symbols such as η_w with their index below the line, in texts of a figure.
export const subscripted = (text) => text.replace(/([α-ω])_(\w)/g, "$1<sub>$2</sub>");

const inkOf = (dark) => (dark ? "#e8e8e8" : "#1a1a1a");
// What is black on paper has the colour of the text.
const onScreen = (colour, dark) => (colour === "#000000" ? inkOf(dark) : colour);
const gridOf = (dark) => (dark ? "#3a3f47" : "#dddddd");

const coloured = (axis, dark) => (axis.minor ? { ...axis, minor: { ...axis.minor, gridcolor: gridOf(dark) } } : axis);

function layout(dark, x, y) {
  const ink = inkOf(dark);
  const axis = { gridcolor: gridOf(dark), zeroline: false, automargin: true, ticks: "outside", tickcolor: "rgba(0,0,0,0)" };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 13 },
    margin: { l: 60, r: 20, t: 34, b: 48 }, hovermode: "closest", showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: inkOf(dark), activecolor: dark ? "#56B4E9" : "#0072B2" },
    xaxis: { ...axis, ...coloured(x, dark) }, yaxis: { ...axis, ...coloured(y, dark) },
  };
}

// Nothing leaves this machine: no button that sends a figure to Plotly.
const CONFIG = { displaylogo: false, responsive: true, plotlyServerURL: "", modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "sendChartToCloud", "sendDataToCloud"] };

// Names below each other take the height of a narrow plot.
const NARROW = 520;
const MANY = 4;

export function put(element, figure) {
  const narrow = element.clientWidth < NARROW;
  const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length;
  element.classList.toggle("many", narrow && figure.layout.showlegend && names > MANY);
  if (narrow) Object.assign(figure.layout, { height: element.clientHeight, font: { ...figure.layout.font, size: 12 }, legend: { ...figure.layout.legend, font: { size: 11 } } });
  // On a narrow plot its tools would cover the title of the axis.
  return Plotly.react(element, figure.data, figure.layout, { ...CONFIG, displayModeBar: narrow ? false : "hover" }).then(() => named(element));
}

// Plotly draws its tools without names for a screen reader, and out of reach of the keyboard.
function named(element) {
  for (const drawn of element.querySelectorAll("svg.main-svg")) drawn.setAttribute("aria-hidden", "true");
  for (const bar of element.querySelectorAll(".modebar")) {
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Tools of the plot");
  }
  for (const tool of element.querySelectorAll(".modebar-btn:not([role])")) {
    tool.setAttribute("role", "button");
    tool.setAttribute("aria-label", tool.dataset.title);
    tool.tabIndex = 0;
    tool.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      tool.click();
    });
  }
}

// A figure with its settings below, on white.
export function captioned(figure, text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if ((lines.at(-1) + word).length > 120) lines.push("");
    lines[lines.length - 1] += `${word} `;
  }
  const title = { text: subscripted(lines.map((line) => line.trim()).join("<br>")), font: { size: 10 }, x: 0.01, xanchor: "left", y: 0.01, yanchor: "bottom" };
  return { data: figure.data, layout: { ...figure.layout, title, paper_bgcolor: "white", margin: { ...figure.layout.margin, b: 64 + 14 * lines.length } } };
}

// Over decades powers of ten are enough; the digits between them would only crowd.
function logAxis(values) {
  const known = values.filter((value) => value > 0);
  const decades = Math.log10(Math.max(...known) / Math.min(...known));
  return { type: "log", exponentformat: "power", ...(decades >= 1.5 ? { dtick: 1, minor: { showgrid: decades < 4.5, griddash: "dot" } } : {}) };
}

// A log axis cannot show what is not positive.
const positive = (value) => Math.max(value, 1e-12);

function band(line, colour, logY) {
  const known = line.x.map((_, i) => i).filter((i) => line.y[i] !== null);
  const back = [...known].reverse();
  const bar = (i) => line.bar[i] ?? 0;
  const low = (i) => (logY ? positive(line.y[i] - bar(i)) : line.y[i] - bar(i));
  return {
    x: [...known, ...back].map((i) => line.x[i]),
    y: [...known.map((i) => line.y[i] + bar(i)), ...back.map(low)], fill: "toself",
    fillcolor: colour + "33", line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines",
  };
}

export function linesFigure(model, dark) {
  const data = [];
  for (const line of model.lines) {
    const { label, dash, ...look } = lookOf(line.name);
    const colour = onScreen(look.colour, dark);
    const pinned = line.pin !== undefined;
    data.push(band(line, colour, model.logY));
    data.push({
      x: line.x, y: line.y, mode: "lines", name: pinned ? `${label}, pinned ${line.pin + 1}` : label,
      // Few points come first, while a slider moves: a smooth line is closer to what follows.
      line: { color: colour, width: pinned ? 1.5 : 2.5, dash: pinned ? "dot" : dash, shape: line.x.length < 10 ? "spline" : "linear" },
      customdata: line.x.map((_, i) => [line.bar[i] ?? 0, line.notes?.[i] ?? ""]),
      hovertemplate: "%{x:.4g}: %{y:.5g} ± %{customdata[0]:.1g} %{customdata[1]}<extra>%{fullData.name}</extra>",
    });
  }
  for (const dot of model.dots) {
    const { label, symbol, ...look } = lookOf(dot.name);
    const colour = onScreen(look.colour, dark);
    data.push({
      x: [dot.x], y: [dot.y], mode: "markers", name: `${label}, d = ${dot.dimension}`, showlegend: false,
      marker: { color: dark ? "#16181c" : "white", size: 9, symbol, line: { color: colour, width: 2 } },
      error_y: { type: "data", array: [dot.bar ?? 0], color: colour },
      hovertemplate: `%{x:.4g}: %{y:.5g}${dot.bar === null ? "" : ` ± ${dot.bar.toPrecision(1)}`}, ${dot.trials} trial${dot.trials === 1 ? "" : "s"}<extra>%{fullData.name}</extra>`,
    });
  }
  const all = (part) => model.lines.flatMap((line) => line[part]);
  const x = { title: { text: subscripted(model.xTitle) }, ...(model.logX ? logAxis(all("x")) : {}) };
  const y = { title: { text: subscripted(model.yTitle) }, ...(model.logY ? logAxis(all("y")) : {}) };
  if (!model.logY) y.rangemode = "tozero";
  const made = layout(dark, x, y);
  const ends = model.lines.flatMap((line) => [line.x[0], line.x.at(-1)]);
  if (model.here !== null && model.here >= Math.min(...ends) && model.here <= Math.max(...ends)) {
    // Where the sliders are now.
    made.shapes = [{ type: "line", x0: model.here, x1: model.here, yref: "paper", y0: 0, y1: 1, layer: "below", line: { color: inkOf(dark), width: 1, dash: "dot" } }];
  }
  return { data, layout: made };
}

// The line along which values of a map take one level.
function edge(common, values, level, name, dash, dark) {
  return { ...common, type: "contour", z: values, contours: { coloring: "none", start: level, end: level, size: 1 }, line: { color: inkOf(dark), width: 2, dash }, showscale: false, showlegend: true, hoverinfo: "skip", name };
}

const known = (grid) => grid.some((row) => row.some((value) => value !== null));

export function mapFigure(model, dark) {
  const { x, y, log, values, quantity, diverging } = model;
  const [xTitle, yTitle] = [model.xTitle, model.yTitle].map(subscripted);
  const names = Object.keys(values).filter((name) => name !== "capacity_ratio" && known(values[name]));
  // What is not computed yet is filled from its neighbours, and does not answer to the pointer.
  const common = { x, y, connectgaps: true, hoverongaps: false };
  const hover = (what) => `${xTitle} %{x:.3g}<br>${yTitle} %{y:.3g}<br>${what} %{z:.4g}<extra></extra>`;
  const middle = dark ? "#16181c" : "#ffffff";
  const twoSided = [[0, "#0072B2"], [0.5, middle], [1, "#D55E00"]];
  const data = [];
  const bar = (text) => ({ title: { text, side: "right" }, thickness: 14 });
  if (names.length >= 2) {
    const [first, second] = names.map((name) => values[name]);
    const gain = first.map((row, i) => row.map((value, j) => (value === null || second[i][j] === null ? null : second[i][j] - value)));
    const difference = `error: ${names[1]} − ${names[0]}`;
    data.push({ ...common, hovertemplate: hover(difference), type: "heatmap", z: gain, zmid: 0, colorscale: twoSided, colorbar: bar(difference) });
    data.push(edge(common, gain, 0, `${names[0]} equals ${names[1]}`, "solid", dark));
    data.push(edge(common, first, 0.05, `${names[0]}: error of 5 %`, "dash", dark));
  } else if (names.length === 1) {
    data.push({ ...common, hovertemplate: hover(quantity), type: "heatmap", z: values[names[0]], zmid: diverging ? 0 : undefined, zmin: diverging ? -1 : undefined, zmax: diverging ? 1 : undefined, colorscale: diverging ? twoSided : "Cividis", colorbar: bar(quantity) });
    if (diverging) data.push(edge(common, values[names[0]], 0, "cosine 0: beyond it the query points away", "solid", dark));
  }
  const ratios = values.capacity_ratio;
  if (ratios && known(ratios)) data.push(edge(common, ratios, 1, "capacity of attention", "dot", dark));
  return { data, layout: layout(dark, { title: { text: xTitle }, ...(log[0] ? logAxis(x) : {}) }, { title: { text: yTitle }, ...(log[1] ? logAxis(y) : {}) }) };
}

// What a map shows, how fine it is, and how accurate.
export function mapWords({ values, side, tolerance }, diverging) {
  const names = Object.keys(values).filter((name) => name !== "capacity_ratio" && known(values[name]));
  const parts = diverging ? ["Blue: the query points away from the signal. Line: the boundary."] : [];
  if (names.length > 1) parts.push(`Orange: ${lookOf(names[0]).label} is better.`);
  if (!diverging && names.includes("attention")) parts.push("Below the dotted line the training data of attention can be separated without error.");
  return `${parts.join(" ")} ${side[0]} × ${side[1]} settings${tolerance ? `, each to ±${tolerance}` : ""}.`.trim();
}

export function tokensWords({ given, alignment, sharpness, mass, length, places }) {
  const part = length > places.length ? ` Of ${length} tokens, the informative ones and those with the largest weights are shown.` : "";
  return `${given ? "Given" : "Learnt"} query: cosine ${alignment.toFixed(3)}, sharpness ${sharpness === null ? "∞" : sharpness.toFixed(2)}. ${(100 * mass).toFixed(1)} % of the attention is on the signal.${part}`;
}

export function tokensFigure(piece, dark) {
  const places = piece.places;
  const colour = piece.informative.map((marked) => (marked ? "#D55E00" : dark ? "#56B4E9" : "#0072B2"));
  const symbol = piece.informative.map((marked) => (marked ? "star" : "circle-open"));
  const size = piece.informative.map((marked) => (marked ? 13 : 7));
  const hover = (what) => `token %{x}: ${what} %{y:.3f}<extra></extra>`;
  const data = [
    { x: places, y: piece.weights, type: "bar", name: "attention weight", marker: { color: colour }, hovertemplate: hover("weight") },
    { x: places, y: piece.scores, yaxis: "y2", mode: "markers", name: "score along the query", marker: { color: colour, symbol, size, opacity: 1 }, hovertemplate: hover("score") },
  ];
  const made = layout(dark, { title: { text: "token (orange star: carries the signal)" } }, { title: { text: "weight" }, domain: [0, 0.48] });
  made.yaxis2 = { ...made.yaxis, title: { text: "score" }, domain: [0.54, 1] };
  made.showlegend = false;
  return { data, layout: made };
}

export function weightsFigure(own, dark) {
  const data = [{ z: own.weights, type: "heatmap", colorscale: "Cividis", colorbar: { title: { text: "attention weight", side: "right" }, thickness: 14 }, x: own.weights[0].map((_, i) => i + 1), y: own.samples.map((s, i) => `sample ${s} (${own.labels[i]})`), hovertemplate: "%{y}, token %{x}: %{z:.3f}<extra></extra>" }];
  return { data, layout: layout(dark, { title: { text: "token" } }, { type: "category" }) };
}
