// The page: a state in the address, a socket to the server, and what it answers on the plot.

import { choice, makeControl, write } from "./controls.js";
import { captioned, drawAs, linesFigure, lookOf, mapFigure, mapWords, orderOf, put, tokensFigure, tokensWords, weightsFigure } from "./plots.js";

const $ = (id) => document.getElementById(id);
const about = await (await fetch("about.json")).json();
drawAs(about.looks);
const fields = [...Object.values(about.groups).flat(), ...about.page];
const usual = Object.fromEntries(fields.map((field) => [field.name, field.usual]));

let values = {};       // what differs from the usual, with the view
let request = 0;
let oldest = 0;        // answers to requests before this one show something else
let picture = { lines: [], dots: [], here: null };
let map = null;
let tokens = null;
let socket = null;
let tourStep = -1;

// ---- the state in the address

const separator = (name) => (name === "pins" ? "|" : ",");

// What an address says, and parts of it that this page does not know. In another version names may
// mean something else: of that only the view is taken.
function readAddress() {
  if (location.hash.length > about.limits.address) return [{ view: "learning" }, [`more than ${about.limits.address} letters`]];
  const parts = [...new URLSearchParams(location.hash.slice(1))];
  const known = Object.assign(Object.create(null), { v: (text) => text === String(about.version), view: (text) => Object.hasOwn(about.views, text) });
  const isKnown = ([name, text]) => known[name]?.(text) ?? Object.hasOwn(usual, name);
  const strange = parts.filter((part) => !isKnown(part));
  const foreign = strange.some(([name]) => name === "v");
  const found = { view: "learning" };
  for (const [name, text] of parts.filter(isKnown)) {
    if (name === "v" || (foreign && name !== "view")) continue;
    found[name] = Array.isArray(usual[name]) ? text.split(separator(name)) : text;
  }
  return [found, strange.map(([name, text]) => `${name}=${text}`.slice(0, 40))];
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
    if (["over", "second", "logarithmic", "logarithmic_y"].includes(name)) return kind[name];
    if (name === "quantity") return kind.quantities[0];
    if (name === "classifiers") return kind.at_first.length ? kind.at_first : kind.classifiers;
    return usual[name];
  }
  if (typeof usual[name] === "number" || ["start", "stop", "second_start", "second_stop"].includes(name)) return Number.isNaN(Number(value)) ? value : Number(value);
  if (typeof usual[name] === "boolean" || name.startsWith("logarithmic")) return value === true || value === "1" || value === "true";
  return value;
}

// With the same samples for query and readout there is one number of them.
function tied(changes) {
  const reuse = "reuse" in changes ? changes.reuse : current("reuse");
  if (!reuse) return changes;
  const samples = changes.alpha0 ?? changes.alpha1 ?? current("alpha0");
  return { ...changes, alpha0: samples, alpha1: samples };
}

function set(changes, settled = true) {
  const before = address();
  values = { ...values, ...tied(changes) };
  const next = `#${address()}`;
  if (`#${before}` !== next || settled) {
    if (settled && location.hash !== next) history.pushState(null, "", next);
    else history.replaceState(null, "", next);
  }
  if (!("pins" in changes)) picture.dots = keepsDots(changes) ? picture.dots : [];
  // While a slider moves, an answer on the way is better than none.
  if (!Object.keys(changes).every((name) => settings.has(name))) oldest = request + 1;
  show();
  ask();
}

const settings = new Set(Object.values(about.groups).flat().map((field) => field.name));
const keepsDots = (changes) => Object.keys(changes).every((name) => ["points", "start", "stop", "logarithmic", "logarithmic_y", "dimension", "trials", current("over")].includes(name));

function clear() {
  picture = { lines: [], dots: [], here: null };
  map = null;
  tokens = null;
  oldest = request + 1;
  $("numbers").replaceChildren();
}

function load() {
  const [found, strange] = readAddress();
  values = found;
  clear();
  show();
  ask();
  if (strange.length) note(`This page, version ${about.version} of its addresses, does not know all of this one: ${strange.slice(0, 3).join(", ")}. It shows the rest.`);
}

// Words above the plot that stay until something else is asked for.
function note(text) {
  $("words").hidden = false;
  $("words").textContent = text;
  $("words").dataset.note = "1";
}

// ---- the socket

function connect() {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.addEventListener("open", () => { tell(""); ask(); });
  socket.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  socket.addEventListener("close", ({ code }) => {
    tell(code === about.crowded ? "Too many tabs show this page: close another one." : "The server is not there. Start it again: sparsetoken explore", true);
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
  if (message.number !== undefined && message.number < oldest) return;
  if (message.number !== undefined) clearTimeout(waiting);
  const newest = message.number === request;
  const handlers = {
    line: () => { putLine(message); drawn(); },
    map: () => { map = message; drawn(); },
    tokens: () => { tokens = message; drawn(); },
    numbers: () => { numbers(message.rows, message.accuracy); },
    note: () => { note(message.text); },
    refining: () => { if (newest) tell(message.accuracy === "final" ? `Refining, ${message.done} of ${message.total} parts …` : "Computing …"); },
    done: () => { if (newest) done(message); },
    error: () => { if (newest || message.number === undefined) refused(message.text); },
    progress: () => { $("progress").value = message.done; $("progress").max = message.total; },
    dot: () => { picture.dots.push(message); drawn(); },
    simulated: () => { simulating(false); if (message.cancelled) tell("The simulation was cancelled."); },
    text: () => { copied(message); },
  };
  handlers[message.kind]?.();
}

function refused(text) {
  clearTimeout(waiting);
  tell(text, true);
  simulating(false);
  // What was drawn for another address would seem to belong to this one.
  if (!picture.lines.length && !map && !tokens) Plotly.purge($("plot"));
  document.body.dataset.answered = `${request}:error`;
}

function done(message) {
  const final = message.accuracy === "final";
  const said = values.view === "inside" ? tokensWords(tokens) : final ? (map && mapWords(map, values.view === "turning")) ?? "Default accuracy. Bands are numerical error bars." : "Screen accuracy, refining …";
  tell(message.text ?? said);
  document.body.dataset.answered = `${message.number}:${message.accuracy}`;
}

function putLine(line) {
  if (document.body.dataset.lines !== String(line.number)) {
    // The first line of a new answer: lines that are not drawn again go with the last ones.
    document.body.dataset.lines = String(line.number);
    for (const old of picture.lines) old.stale = true;
  }
  const same = picture.lines.findIndex((old) => old.name === line.name && old.pin === line.pin);
  if (same >= 0) picture.lines[same] = line; else picture.lines.push(line);
}

// ---- what is shown

function title(name) {
  return fields.find((field) => field.name === name)?.title ?? about.axes[name] ?? name;
}

const quantityName = (name) => about.quantities[name] ?? name.replaceAll("_", " ");

function model() {
  const xTitle = title(current("over"));
  if (["map", "turning"].includes(values.view)) return { ...map, xTitle, yTitle: title(current("second")), quantity: quantityName(current("quantity")), diverging: values.view === "turning" };
  const pins = (values.pins ?? []).length;
  picture.lines = picture.lines.filter((line) => (line.pin === undefined ? !line.stale || keptName(line.name) : line.pin < pins));
  picture.lines.sort((a, b) => (a.pin ?? -1) - (b.pin ?? -1) || orderOf(a.name) - orderOf(b.name));
  return { ...picture, xTitle, yTitle: quantityName(current("quantity")), logX: current("logarithmic"), logY: current("logarithmic_y") };
}

const keptName = (name) => current("classifiers").includes(name) || values.view === "shift";

function figure(dark) {
  if (values.view === "inside") return tokens && tokensFigure(tokens, dark);
  if (["map", "turning"].includes(values.view)) return map && mapFigure(model(), dark);
  return linesFigure(model(), dark);
}

const isDark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;

let frame = 0;
function drawn() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    const made = figure(isDark());
    if (made) put($("plot"), made);
  });
}

const SAMPLES = ["alpha0", "alpha1"];

// The settings in one line, for people and for saved figures.
function caption() {
  const parts = ["task", "training", ...(current("given_query") ? ["query"] : [])];
  const kind = about.views[values.view];
  const axes = [current("over"), ...(kind.second ? [current("second")] : [])];
  const shared = current("reuse") && !current("given_query") && axes.some((name) => SAMPLES.includes(name));
  const hidden = new Set([...axes, ...(shared ? SAMPLES : []), ...idle()]);
  const wanted = values.view === "strength" ? [`error = ${current("error")}`] : [];
  return wanted.concat(parts.flatMap((part) => about.groups[part]).filter((field) => !hidden.has(field.name) && !(field.kind === "switch" && !current(field.name))).map((field) => `${symbolOf(field)} = ${current(field.name)}`)).join(", ");
}

// Settings that change nothing in this view; samples that are shared do. A given query used none.
const idle = () => [
  ...about.views[values.view].idle.filter((name) => !(name === "alpha1" && current("reuse") && !current("given_query"))),
  ...(current("given_query") ? ["reuse"] : []),
];

const symbolOf = (field) => field.title.match(/\(([^ )]*)/)?.[1] ?? field.title;

// A number with its error stays in one line.
const unbroken = (text) => text.replaceAll(" ", "\u00a0").replaceAll("-", "\u2011");

function numbers(rows, accuracy) {
  const table = $("numbers");
  table.replaceChildren();
  picture.here = rows[0]?.x ?? null;
  write(table.createCaption(), `${quantityName(current("quantity"))} at ${symbolOf({ title: title(current("over")) })} = ${Number(picture.here.toPrecision(5))}`);
  const spoken = [];
  for (const row of rows) {
    const line = table.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = lookOf(row.name).label;
    line.append(head);
    const cell = line.insertCell();
    Object.assign(cell.dataset, { name: row.name, value: row.value, accuracy });
    cell.textContent = `${unbroken(row.text)} ${row.note}`;
    spoken.push(`${lookOf(row.name).label} ${row.text}`);
  }
  const kind = about.views[values.view];
  $("plot").setAttribute("aria-label", `${kind.title}: ${quantityName(current("quantity"))} against ${title(current("over"))}. At the present settings: ${spoken.join("; ")}`);
  drawn();
}

function tell(text, error = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", error);
}

const shown = [];
function show() {
  const kind = about.views[values.view];
  $("question").textContent = kind.question;
  write($("caption"), caption());
  $("plot").setAttribute("aria-label", `Plot of the view ${kind.title}`);
  for (const tab of $("views").children) {
    tab.setAttribute("aria-selected", String(tab.dataset.view === values.view));
    tab.tabIndex = tab.dataset.view === values.view ? 0 : -1;
    if (tab.tabIndex === 0) inSight(tab);
  }
  $("unpin").hidden = !(values.pins ?? []).length;
  $("pin").hidden = ["map", "turning", "inside"].includes(values.view);
  for (const { name, control } of shown) {
    control.show(current(name));
    control.box.classList.toggle("idle", idle().includes(name));
  }
  if ($("words").dataset.note) { $("words").hidden = true; delete $("words").dataset.note; }
  $("redraw").hidden = values.view !== "inside";
  $("simulation").hidden = !kind.simulated;
  $("dimension").value = current("dimension");
  $("trials").value = current("trials");
  $("wanted").hidden = values.view !== "strength";
  $("error").value = current("error");
  for (const button of document.querySelectorAll("[data-copy=study]")) button.hidden = values.view !== "learning";
  axesBar(kind);
  linesBar(kind);
}

// On a narrow page the list of views scrolls sideways.
function inSight(tab) {
  const list = $("views"), box = tab.getBoundingClientRect(), frame = list.getBoundingClientRect();
  if (box.left < frame.left || box.right > frame.right) list.scrollLeft += box.left - frame.left - (frame.width - box.width) / 2;
}

function small(label, element) {
  const box = document.createElement("label");
  box.append(label, " ", element);
  return box;
}

// What belongs to one axis stays in one row where there is room.
function together(...elements) {
  const box = document.createElement("div");
  box.className = "group";
  box.append(...elements);
  return box;
}

function edge(name) {
  const input = document.createElement("input");
  Object.assign(input, { type: "number", step: "any", placeholder: "auto", value: values[name] ?? "" });
  input.addEventListener("change", () => set({ [name]: input.value === "" ? undefined : Number(input.value) }));
  return input;
}

function checkbox(checked, changed) {
  const box = document.createElement("input");
  Object.assign(box, { type: "checkbox", checked });
  box.addEventListener("change", () => changed(box.checked, box));
  return box;
}

function axesBar(kind) {
  const bar = $("axes");
  if (bar.contains(document.activeElement)) return;
  bar.replaceChildren();
  if (values.view === "inside") return;
  const fixed = values.view === "shift";
  const names = fixed ? ["at_length"] : about.varied.filter((name) => current("given_query") || !about.groups.query.some((field) => field.name === name));
  if (values.view === "learning") names.push("alpha");
  const over = choice(names, (value) => set({ over: value, start: undefined, stop: undefined }), title);
  over.value = current("over");
  const logX = checkbox(current("logarithmic"), (checked) => set({ logarithmic: checked }));
  bar.append(together(small("x", over), small("from", edge("start")), small("to", edge("stop")), small("log x", logX)));
  if (kind.second) {
    const second = choice(names.filter((name) => name !== current("over")), (value) => set({ second: value, second_start: undefined, second_stop: undefined }), title);
    second.value = current("second");
    bar.append(together(small("y", second), small("from", edge("second_start")), small("to", edge("second_stop"))));
  } else {
    bar.append(small("points", edge("points")));
    bar.lastChild.lastChild.placeholder = String(usual.points);
    bar.append(small("log y", checkbox(current("logarithmic_y"), (checked) => set({ logarithmic_y: checked }))));
  }
  if (kind.quantities.length > 1) {
    const quantity = choice(kind.quantities, (value) => { clear(); set({ quantity: value }); }, quantityName);
    quantity.value = current("quantity");
    bar.append(small("show", quantity));
  }
}

function linesBar(kind) {
  const bar = $("lines");
  if (bar.contains(document.activeElement)) return;
  bar.replaceChildren();
  if (kind.classifiers.length < 2) return;
  for (const name of kind.classifiers) {
    bar.append(small("", checkbox(current("classifiers").includes(name), (checked, box) => {
      const others = current("classifiers").filter((other) => other !== name);
      if (checked && kind.most && others.length >= kind.most) others.pop();
      const now = kind.classifiers.filter((other) => (other === name ? checked : others.includes(other)));
      if (now.length === 0) { box.checked = true; return; }
      picture.lines = picture.lines.filter((line) => now.some((kept) => line.name.startsWith(kept)));
      map = null;
      set({ classifiers: now });
    })));
    bar.lastChild.append(" ", lookOf(name).label);
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
  if (map) {
    rows[0] = ["name", current("over"), current("second"), "value"];
    for (const [name, grid] of Object.entries(map.values)) grid.forEach((row, i) => row.forEach((z, j) => { if (z !== null) rows.push([name, map.x[j], map.y[i], z]); }));
  }
  if (tokens) {
    rows[0] = ["token", "score", "weight", "informative"];
    tokens.places.forEach((place, i) => rows.push([place, tokens.scores[i], tokens.weights[i], Number(tokens.informative[i])]));
  }
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
  saveFile("explorer.csv", rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n", "text/csv");
}

// Saved figures are for paper: light, with their settings below.
function saveFigure(format) {
  const made = figure(false);
  if (made) Plotly.downloadImage(captioned(made, `${about.views[values.view].title}. ${caption()}`), { format, filename: "explorer", width: 900, height: 560, scale: format === "png" ? 2 : 1 });
}

async function ownData(file) {
  $("own-text").hidden = false;
  $("own-text").textContent = "Comparing classifiers on your data …";
  $("own-plot").hidden = true;
  if (file.size > about.limits.file) { $("own-text").textContent = `This file has ${file.size} bytes; at most ${about.limits.file} are taken here. compare() in Python has no such limit.`; return; }
  try {
    const answer = await fetch("own", { method: "POST", body: file });
    const found = await answer.json();
    $("own-text").textContent = found.text;
    $("own-plot").hidden = found.kind === "error";
    if (found.kind !== "error") put($("own-plot"), weightsFigure(found, isDark()));
  } catch {
    $("own-text").textContent = "The server did not answer. Is it still there?";
  }
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
  tab.setAttribute("aria-controls", "stage");
  tab.textContent = kind.title;
  tab.addEventListener("click", () => {
    const kept = Object.fromEntries(Object.entries(values).filter(([field]) => settings.has(field) || field === "given_query"));
    clear();
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
$("reset").addEventListener("click", () => { clear(); const { view } = values; values = {}; set({ view }); });
$("redraw").addEventListener("click", () => set({ draw: (Number(values.draw ?? 0) + 1) }));
$("tour").addEventListener("click", () => step(0));
$("tour-next").addEventListener("click", () => step(tourStep + 1));
$("simulate").addEventListener("click", () => { simulating(true); send({ kind: "simulate", state: values }); });
$("cancel").addEventListener("click", () => send({ kind: "cancel" }));
for (const name of ["dimension", "trials", "error"]) $(name).addEventListener("change", () => set({ [name]: Number($(name).value) }));
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => send({ kind: "text", language: button.dataset.copy, state: values }));
for (const button of document.querySelectorAll("[data-save]")) button.addEventListener("click", () => saveFigure(button.dataset.save));
$("link").addEventListener("click", () => copied({ text: location.href, language: "link" }));
$("csv").addEventListener("click", csv);
$("file").addEventListener("change", () => { if ($("file").files[0]) ownData($("file").files[0]); });
$("drop").addEventListener("dragover", (event) => event.preventDefault());
$("drop").addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) ownData(event.dataTransfer.files[0]); });
$("views").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const tabs = [...$("views").children];
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
});
// Escape leaves whatever is open: a running simulation, the tour, a copied text.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!$("cancel").hidden) send({ kind: "cancel" });
  else if (tourStep >= 0) step(about.tour.length);
  else { $("words").hidden = true; $("copied").hidden = true; }
});
window.addEventListener("popstate", load);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawn);
load();
connect();
