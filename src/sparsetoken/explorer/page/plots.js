// Drawing: theory as lines with error bands, simulation as markers with error bars.

const LOOKS = {
  attention: ["attention", "#D55E00", "circle", "solid"],
  pooled: ["pooled linear", "#0072B2", "square", "solid"],
  vectorised: ["vectorised linear", "#009E73", "triangle-up", "solid"],
  floor: ["Bayes floor", "#777777", "star", "dash"],
  bayes: ["Bayes, signal known", "#777777", "star", "dash"],
  "attention, bias moved": ["attention, bias moved", "#E69F00", "circle", "dash"],
  "attention, best sharpness and bias": ["attention, best sharpness and bias", "#CC79A7", "circle", "solid"],
  "hard maximum, bias moved": ["hard maximum, bias moved", "#777777", "diamond", "dot"],
  "pooled, bias moved": ["pooled, bias moved", "#56B4E9", "square", "dash"],
};

const OTHERS = ["#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1"];

export function lookOf(name) {
  if (LOOKS[name]) return LOOKS[name];
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return [name.replaceAll("_", " "), OTHERS[hash % OTHERS.length], "diamond", "dot"];
}

const dark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;

function layout(title, x, y) {
  const ink = dark() ? "#e8e8e8" : "#1a1a1a";
  const grid = dark() ? "#3a3f47" : "#dddddd";
  const axis = { gridcolor: grid, zeroline: false, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 13 },
    margin: { l: 60, r: 12, t: 34, b: 48 }, hovermode: "closest", showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    title: { text: title, font: { size: 11 }, y: 0.01, yanchor: "bottom", x: 0.5, automargin: false },
    xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y },
  };
}

const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };

function band(line, colour) {
  const known = line.x.map((_, i) => i).filter((i) => line.y[i] !== null);
  const back = [...known].reverse();
  const bar = (i) => line.bar[i] ?? 0;
  return {
    x: [...known, ...back].map((i) => line.x[i]),
    y: [...known.map((i) => line.y[i] + bar(i)), ...back.map((i) => line.y[i] - bar(i))], fill: "toself",
    fillcolor: colour + "33", line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines",
  };
}

export function drawLines(element, model) {
  const traces = [];
  for (const line of model.lines) {
    const [label, colour, , dash] = lookOf(line.name);
    const pinned = line.pin !== undefined;
    traces.push(band(line, colour));
    traces.push({
      x: line.x, y: line.y, mode: "lines", name: pinned ? `${label}, pinned ${line.pin + 1}` : label,
      line: { color: colour, width: pinned ? 1.5 : 2.5, dash: pinned ? "dot" : dash },
      customdata: line.x.map((_, i) => [line.bar[i] ?? 0, line.notes?.[i] ?? ""]),
      hovertemplate: "%{x:.4g}: %{y:.5g} ± %{customdata[0]:.1g} %{customdata[1]}<extra>%{fullData.name}</extra>",
    });
  }
  for (const dot of model.dots) {
    const [label, colour, symbol] = lookOf(dot.name);
    traces.push({
      x: [dot.x], y: [dot.y], mode: "markers", name: `${label}, d = ${dot.dimension}`, showlegend: false,
      marker: { color: "white", size: 9, symbol, line: { color: colour, width: 2 } },
      error_y: { type: "data", array: [dot.bar ?? 0], color: colour },
      hovertemplate: `%{x:.4g}: %{y:.5g} ± ${(dot.bar ?? 0).toPrecision(1)}, ${dot.trials} trials<extra>%{fullData.name}</extra>`,
    });
  }
  const x = { title: { text: model.xTitle }, type: model.logX ? "log" : "linear" };
  const y = { title: { text: model.yTitle }, type: model.logY ? "log" : "linear" };
  if (!model.logY) y.rangemode = "tozero";
  return Plotly.react(element, traces, layout("", x, y), CONFIG);
}

// The line along which values of a map take one level.
function edge(common, values, level, name, dash) {
  return { ...common, type: "contour", z: values, contours: { coloring: "none", start: level, end: level, size: 1 }, line: { color: dark() ? "#fff" : "#000", width: 2, dash }, showscale: false, showlegend: true, hoverinfo: "skip", name };
}

export function drawMap(element, model) {
  const { axes, rows, xTitle, yTitle, quantity } = model;
  const names = Object.keys(rows[0] ?? {}).filter((name) => name !== "capacity_ratio");
  const grid = (name) => axes.y.map((_, i) => rows[i]?.[name] ?? axes.x.map(() => null));
  const traces = [];
  const common = { x: axes.x, y: axes.y, hovertemplate: `${xTitle} %{x:.3g}<br>${yTitle} %{y:.3g}<br>%{z:.4g}<extra></extra>` };
  if (names.length >= 2) {
    const [first, second] = names.map(grid);
    const gain = first.map((row, i) => row.map((value, j) => (value === null || second[i][j] === null ? null : second[i][j] - value)));
    traces.push({ ...common, type: "heatmap", z: gain, zmid: 0, colorscale: [[0, "#0072B2"], [0.5, dark() ? "#16181c" : "#ffffff"], [1, "#D55E00"]], colorbar: { title: { text: `${names[1]} − ${names[0]}`, side: "right" } } });
    traces.push(edge(common, gain, 0, `${names[0]} equals ${names[1]}`, "solid"));
    traces.push(edge(common, first, 0.05, `${names[0]}: error of 5 %`, "dash"));
  } else if (names.length === 1) {
    traces.push({ ...common, type: "heatmap", z: grid(names[0]), zmid: quantity === "alignment" ? 0 : undefined, colorscale: quantity === "alignment" ? [[0, "#0072B2"], [0.5, "#ffffff"], [1, "#D55E00"]] : "Cividis", colorbar: { title: { text: quantity.replaceAll("_", " "), side: "right" } } });
    if (quantity === "alignment") traces.push(edge(common, grid(names[0]), 0, "alignment 0: beyond it the query points away", "solid"));
  }
  const ratios = grid("capacity_ratio");
  if (ratios.flat().some((ratio) => ratio !== null)) traces.push(edge(common, ratios, 1, "capacity of attention", "dot"));
  const x = { title: { text: xTitle }, type: axes.log[0] && axes.x[0] > 0 ? "log" : "linear" };
  const y = { title: { text: yTitle }, type: axes.log[1] ? "log" : "linear" };
  return Plotly.react(element, traces, layout("", x, y), CONFIG);
}

export function drawTokens(element, piece) {
  const places = piece.scores.map((_, i) => i + 1);
  const marked = new Set(piece.informative);
  const colour = places.map((_, i) => (marked.has(i) ? "#D55E00" : "#0072B2"));
  const traces = [
    { x: places, y: piece.weights, type: "bar", name: "attention weight", marker: { color: colour }, hovertemplate: "token %{x}: weight %{y:.3f}<extra></extra>" },
    { x: places, y: piece.scores, yaxis: "y2", mode: "markers", name: "score along the query", marker: { color: colour, symbol: places.map((_, i) => (marked.has(i) ? "star" : "circle-open")), size: places.map((_, i) => (marked.has(i) ? 13 : 7)) }, hovertemplate: "token %{x}: score %{y:.3f}<extra></extra>" },
  ];
  const made = layout("", { title: { text: "token (orange: carries the signal)" } }, { title: { text: "attention weight" }, domain: [0, 0.48] });
  made.yaxis2 = { ...made.yaxis, title: { text: "score" }, domain: [0.52, 1] };
  made.showlegend = false;
  return Plotly.react(element, traces, made, CONFIG);
}

export function drawWeights(element, own) {
  const traces = [{ z: own.weights, type: "heatmap", colorscale: "Cividis", y: own.samples.map((s, i) => `sample ${s} (${own.labels[i]})`), hovertemplate: "%{y}, token %{x}: %{z:.3f}<extra></extra>" }];
  return Plotly.react(element, traces, layout("", { title: { text: "token" } }, { automargin: true, type: "category" }), CONFIG);
}
