// The page: a state in the address, a socket to the server, and what it answers on the plot.

import { choice, makeControl } from "./controls.js";
import { drawLines, drawMap, drawTokens, drawWeights } from "./plots.js";

const $ = (id) => document.getElementById(id);
const about = await (await fetch("about.json")).json();
const fields = [...Object.values(about.groups).flat(), ...about.page];
const usual = Object.fromEntries(fields.map((field) => [field.name, field.usual]));

let values = {};       // what differs from the usual, with the view
let request = 0;
let answered = "";     // accuracy of what is drawn
let picture = { lines: [], dots: [] };
let map = null;
let socket = null;
let tourStep = -1;

// ---- the state in the address

const separator = (name) => (name === "pins" ? "|" : ",");

function readAddress() {
  const found = {};
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (name === "v") continue;
    found[name] = Array.isArray(usual[name]) ? text.split(separator(name)) : text;
  }
  found.view ??= "learning";
  return found;
}

function address(of = values) {
  const parameters = new URLSearchParams({ v: about.version, view: of.view });
  for (const field of fields) {
    const value = of[field.name];
    if (value === undefined || value === null || value === "") continue;
    const text = Array.isArray(value) ? value.join(separator(field.name)) : typeof value === "boolean" ? (value ? "1" : "0") : String(value);
    parameters.set(field.name, text);
  }
  return parameters.toString();
}

function current(name) {
  const kind = about.views[values.view] ?? about.views.learning;
  const value = values[name];
  if (value === undefined) {
    if (["over", "second", "logarithmic"].includes(name)) return kind[name];
    if (name === "quantity") return kind.quantities[0];
    if (name === "classifiers") return kind.classifiers;
    return usual[name];
  }
  if (typeof usual[name] === "number" || ["start", "stop", "second_start", "second_stop"].includes(name)) return Number(value);
  if (typeof usual[name] === "boolean" || name === "logarithmic") return value === true || value === "1" || value === "true";
  return value;
}

function set(changes, settled = true) {
  const before = address();
  values = { ...values, ...changes };
  const next = `#${address()}`;
  if (`#${before}` !== next || settled) {
    if (settled && location.hash !== next) history.pushState(null, "", next);
    else history.replaceState(null, "", next);
  }
  if (!("pins" in changes)) picture.dots = keepsDots(changes) ? picture.dots : [];
  show();
  ask();
}

const keepsDots = (changes) => Object.keys(changes).every((name) => ["points", "start", "stop", "logarithmic", "dimension", "trials", current("over")].includes(name));

function load() {
  values = readAddress();
  if (!(values.view in about.views)) values = { view: "learning" };
  picture = { lines: [], dots: [] };
  map = null;
  show();
  ask();
}

// ---- the socket

function connect() {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.addEventListener("open", () => { tell(""); ask(); });
  socket.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    tell("The server is not there. Start it again: sparsetoken explore", true);
    setTimeout(connect, 1500);
  });
}

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

let waiting = 0;
function ask() {
  request += 1;
  send({ kind: "draw", number: request, state: values });
  clearTimeout(waiting);
  waiting = setTimeout(() => tell("Computing …"), 400);
}

function receive(message) {
  if (message.number !== undefined && message.number !== request) return;
  if (message.number !== undefined) clearTimeout(waiting);
  const handlers = {
    line: () => { putLine(message); },
    axes: () => { map = { axes: message, rows: [] }; },
    row: () => { map.rows[message.index] = { ...map.rows[message.index], ...message.values }; if (message.accuracy === "final") tell(`Refining, row ${message.index + 1} of ${map.axes.y.length} …`); drawn(); },
    tokens: () => { drawTokens($("plot"), message); tell(`Learnt query: cosine ${message.alignment.toFixed(3)}, sharpness ${message.sharpness.toFixed(2)}.${message.cut ? " The first 200 tokens are shown." : ""}`); },
    numbers: () => { numbers(message.rows, message.accuracy); },
    note: () => { $("words").hidden = false; $("words").textContent = message.text; $("words").dataset.note = "1"; },
    done: () => { answered = message.accuracy; if (values.view !== "inside") tell(answered === "final" ? (values.view === "map" ? "Orange: attention is better. Below the dotted line its training data can be separated without error." : values.view === "turning" ? "Blue: the query points away. Line: the boundary." : "Default accuracy; bands are numerical error bars.") : "Screen accuracy, refining …"); document.body.dataset.answered = `${message.number}:${answered}`; },
    error: () => { tell(message.text, true); document.body.dataset.answered = `${request}:error`; },
    progress: () => { $("progress").value = message.done; $("progress").max = message.total; },
    dot: () => { picture.dots.push(message); drawn(); },
    simulated: () => { simulating(false); },
    text: () => { copied(message); },
  };
  handlers[message.kind]?.();
}

function putLine(line) {
  if (document.body.dataset.lines !== String(line.number)) {
    // The first line of a new answer: lines that are not drawn again go with the last ones.
    document.body.dataset.lines = String(line.number);
    for (const old of picture.lines) old.stale = true;
  }
  const same = picture.lines.findIndex((old) => old.name === line.name && old.pin === line.pin);
  if (same >= 0) picture.lines[same] = line; else picture.lines.push(line);
  drawn();
}

// ---- what is shown

function title(name) {
  // Short enough for a phone: the field's name and the symbol at the end of its description.
  const symbol = fields.find((field) => field.name === name)?.description.match(/\(([^)]*)\)$/)?.[1];
  return `${name.replaceAll("_", " ")}${symbol ? ` (${symbol})` : ""}`;
}

function quantityName(name) {
  return name === "alpha" ? "capacity (samples per dimension)" : name.replaceAll("_", " ");
}

let frame = 0;
function drawn() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    const xTitle = title(current("over"));
    if (map && ["map", "turning"].includes(values.view)) {
      drawMap($("plot"), { ...map, rows: map.rows, xTitle, yTitle: title(current("second")), quantity: current("quantity") });
      return;
    }
    if (values.view === "inside") return;
    const wanted = new Set(current("classifiers"));
    const pins = (values.pins ?? []).length;
    picture.lines = picture.lines.filter((line) => (line.pin === undefined ? !line.stale || wanted.has(line.name) : line.pin < pins));
    drawLines($("plot"), { ...picture, xTitle, yTitle: quantityName(current("quantity")), logX: current("logarithmic"), logY: ["strength", "capacity"].includes(values.view) });
  });
}

function numbers(rows, accuracy) {
  const table = $("numbers");
  table.replaceChildren();
  for (const row of rows) {
    const line = table.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = `${row.name}: ${quantityName(row.quantity)}`;
    line.append(head);
    const cell = line.insertCell();
    cell.dataset.name = row.name;
    cell.dataset.value = row.value;
    cell.dataset.accuracy = accuracy;
    cell.textContent = row.value === null ? "–" : `${Number(row.value.toPrecision(5))}${row.bar === null ? "" : ` ± ${row.bar.toPrecision(1)}`} ${row.note}`;
  }
}

function tell(text, error = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", error);
}

const shown = [];
function show() {
  const kind = about.views[values.view];
  $("question").textContent = kind.question;
  for (const tab of $("views").children) tab.setAttribute("aria-selected", String(tab.dataset.view === values.view));
  for (const { name, control } of shown) control.show(current(name));
  if ($("words").dataset.note) { $("words").hidden = true; delete $("words").dataset.note; }
  $("redraw").hidden = values.view !== "inside";
  $("simulation").hidden = !["learning", "query"].includes(values.view);
  $("dimension").value = current("dimension");
  $("trials").value = current("trials");
  if (values.view === "inside") { $("numbers").replaceChildren(); }
  axesBar(kind);
  linesBar(kind);
}

function small(label, element) {
  const box = document.createElement("label");
  box.append(label, " ", element);
  return box;
}

function edge(name) {
  const input = document.createElement("input");
  Object.assign(input, { type: "number", step: "any", placeholder: "auto", value: values[name] ?? "" });
  input.addEventListener("change", () => set({ [name]: input.value === "" ? undefined : Number(input.value) }));
  return input;
}

function axesBar(kind) {
  const bar = $("axes");
  if (bar.contains(document.activeElement)) return;
  bar.replaceChildren();
  if (values.view === "inside") return;
  const names = values.view === "shift" ? ["at_length"] : about.varied;
  const over = choice(names, (value) => set({ over: value, start: undefined, stop: undefined }));
  over.value = current("over");
  bar.append(small("x:", over), small("from", edge("start")), small("to", edge("stop")));
  const log = document.createElement("input");
  Object.assign(log, { type: "checkbox", checked: current("logarithmic") });
  log.addEventListener("change", () => set({ logarithmic: log.checked }));
  bar.append(small("log", log));
  if (kind.second) {
    const second = choice(about.varied, (value) => set({ second: value, second_start: undefined, second_stop: undefined }));
    second.value = current("second");
    bar.append(small("y:", second));
  }
  if (kind.quantities.length > 1) {
    const quantity = choice(kind.quantities, (value) => { picture.lines = []; set({ quantity: value }); });
    quantity.value = current("quantity");
    bar.append(small("show", quantity));
  }
}

function linesBar(kind) {
  const bar = $("lines");
  bar.replaceChildren();
  if (kind.classifiers.length < 2) return;
  for (const name of kind.classifiers) {
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", checked: current("classifiers").includes(name) });
    box.addEventListener("change", () => {
      const now = kind.classifiers.filter((other) => (other === name ? box.checked : current("classifiers").includes(other)));
      if (now.length === 0) { box.checked = true; return; }
      picture.lines = picture.lines.filter((line) => now.includes(line.name));
      map = null;
      set({ classifiers: now });
    });
    bar.append(small("", box));
    bar.lastChild.append(" ", name);
  }
}

function simulating(running) {
  $("progress").hidden = !running;
  $("cancel").hidden = !running;
  $("simulate").disabled = running;
  if (running) $("progress").removeAttribute("value");
}

function copied(message) {
  $("copied").hidden = false;
  $("copied").textContent = message.text;
  $("copied").dataset.language = message.language;
  if (message.language === "study") saveFile("explorer-study.toml", message.text);
  else navigator.clipboard?.writeText(message.text).catch(() => {});
}

function saveFile(name, text, type = "text/plain") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csv() {
  const rows = [["line", "x", "y", "uncertainty"]];
  for (const line of picture.lines) line.x.forEach((x, i) => rows.push([line.pin === undefined ? line.name : `${line.name} pinned ${line.pin + 1}`, x, line.y[i], line.bar[i] ?? ""]));
  for (const dot of picture.dots) rows.push([`${dot.name} simulated`, dot.x, dot.y, dot.bar]);
  if (map) for (const [i, row] of map.rows.entries()) for (const [name, line] of Object.entries(row ?? {})) line.forEach((z, j) => rows.push([name, map.axes.x[j], map.axes.y[i], z]));
  saveFile("explorer.csv", rows.map((row) => row.join(",")).join("\n") + "\n", "text/csv");
}

async function ownData(file) {
  $("own-text").hidden = false;
  $("own-text").textContent = "Comparing classifiers on your data …";
  const answer = await fetch("own", { method: "POST", body: file });
  const found = await answer.json();
  $("own-text").textContent = found.text;
  $("own-plot").hidden = found.kind === "error";
  if (found.kind !== "error") drawWeights($("own-plot"), found);
}

function step(number) {
  tourStep = number;
  const ended = number >= about.tour.length;
  $("tour-next").hidden = ended;
  $("words").hidden = ended;
  if (ended) { tourStep = -1; return; }
  const stop = about.tour[number];
  go(stop.address);
  $("words").hidden = false;
  delete $("words").dataset.note;
  $("words").textContent = `${stop.name}. ${stop.words}`;
  $("tour-next").textContent = number + 1 < about.tour.length ? "Next step" : "End the tour";
}

function go(where) {
  history.pushState(null, "", `#v=${about.version}&${where}`);
  load();
}

// ---- build the page

for (const [name, kind] of Object.entries(about.views)) {
  const tab = document.createElement("button");
  tab.dataset.view = name;
  tab.setAttribute("role", "tab");
  tab.textContent = kind.title;
  tab.addEventListener("click", () => {
    const kept = Object.fromEntries(Object.entries(values).filter(([field]) => Object.values(about.groups).flat().some((item) => item.name === field) || field === "given_query"));
    picture = { lines: [], dots: [] };
    map = null;
    values = {};
    set({ ...kept, view: name });
  });
  $("views").append(tab);
}
const given = about.page.find((field) => field.name === "given_query");
for (const [name, group] of Object.entries(about.groups)) {
  const box = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = name;
  box.append(legend);
  for (const field of [...(name === "query" ? [given] : []), ...group]) {
    const control = makeControl(field, (value, settled) => set({ [field.name]: value }, settled));
    shown.push({ name: field.name, control });
    box.append(control.box);
  }
  $("controls").append(box);
}
$("presets").append(new Option("choose …", ""));
about.presets.forEach((preset, number) => $("presets").append(new Option(preset.name, number)));
$("presets").addEventListener("change", () => {
  const preset = about.presets[$("presets").value];
  if (preset) { go(preset.address); $("words").hidden = false; $("words").textContent = preset.words; }
  $("presets").value = "";
});
$("pin").addEventListener("click", () => {
  const bare = { ...values };
  delete bare.pins;
  set({ pins: [...(values.pins ?? []), address(bare)].slice(-about.limits.pins) });
});
$("unpin").addEventListener("click", () => { picture.lines = picture.lines.filter((line) => line.pin === undefined); set({ pins: undefined }); });
$("undo").addEventListener("click", () => history.back());
$("reset").addEventListener("click", () => { picture = { lines: [], dots: [] }; map = null; const { view } = values; values = {}; set({ view }); });
$("redraw").addEventListener("click", () => set({ draw: (Number(values.draw ?? 0) + 1) }));
$("tour").addEventListener("click", () => step(0));
$("tour-next").addEventListener("click", () => step(tourStep + 1));
$("simulate").addEventListener("click", () => { simulating(true); send({ kind: "simulate", state: values }); });
$("cancel").addEventListener("click", () => send({ kind: "cancel" }));
for (const name of ["dimension", "trials"]) $(name).addEventListener("change", () => set({ [name]: Number($(name).value) }));
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => send({ kind: "text", language: button.dataset.copy, state: values }));
for (const button of document.querySelectorAll("[data-save]")) button.addEventListener("click", () => Plotly.downloadImage($("plot"), { format: button.dataset.save, filename: "explorer", width: 900, height: 560 }));
$("link").addEventListener("click", () => copied({ text: location.href, language: "link" }));
$("csv").addEventListener("click", csv);
$("file").addEventListener("change", () => { if ($("file").files[0]) ownData($("file").files[0]); });
$("drop").addEventListener("dragover", (event) => event.preventDefault());
$("drop").addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) ownData(event.dataTransfer.files[0]); });
window.addEventListener("popstate", load);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawn);
load();
connect();
