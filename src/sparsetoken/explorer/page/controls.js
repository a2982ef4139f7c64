// Controls from the fields' own descriptions: a slider and a number for each, a switch, a choice.

const STEPS = 1000;

function toSlider(field, value) {
  const { low, high, logarithmic } = field;
  if (typeof value === "string") return 0; // a law instead of a number
  const clipped = Math.min(Math.max(value, low), high);
  const share = logarithmic ? Math.log(clipped / low) / Math.log(high / low) : (clipped - low) / (high - low);
  return Math.round(share * STEPS);
}

function fromSlider(field, position) {
  const { low, high, logarithmic, kind } = field;
  const share = position / STEPS;
  const value = logarithmic ? low * (high / low) ** share : low + share * (high - low);
  if (kind === "whole") return Math.round(value);
  return Number(value.toPrecision(3));
}

// Write a text with symbols such as η_w, their index below the line.
export function write(element, text) {
  const parts = text.split(/([α-ω])_(\w)/);
  const nodes = parts.map((part, i) => {
    if (i % 3 !== 2) return part;
    const index = document.createElement("sub");
    index.textContent = part;
    return index;
  });
  element.replaceChildren(...nodes);
}

function labelled(field, id) {
  const label = document.createElement("label");
  label.htmlFor = id;
  write(label, field.description);
  return label;
}

function numberControl(field, id, changed) {
  const box = document.createElement("div");
  box.className = "control";
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: STEPS, id: `${id}-slider` });
  slider.setAttribute("aria-label", field.description);
  const number = document.createElement("input");
  Object.assign(number, field.text ? { type: "text", id } : { type: "number", id, step: "any" });
  box.append(labelled(field, id), slider, number);
  const show = (value) => {
    if (document.activeElement !== number) number.value = value;
    slider.value = toSlider(field, value);
    slider.setAttribute("aria-valuetext", String(value));
  };
  slider.addEventListener("input", () => changed(fromSlider(field, Number(slider.value)), false));
  slider.addEventListener("change", () => changed(fromSlider(field, Number(slider.value)), true));
  number.addEventListener("change", () => {
    const text = number.value.trim();
    if (text !== "") changed(Number.isNaN(Number(text)) ? text : Number(text), true);
  });
  return { box, show };
}

function switchControl(field, id, changed) {
  const box = document.createElement("div");
  box.className = "switch";
  const input = document.createElement("input");
  Object.assign(input, { type: "checkbox", id });
  box.append(input, labelled(field, id));
  input.addEventListener("change", () => changed(input.checked, true));
  return { box, show: (value) => { input.checked = value; } };
}

function choiceControl(field, id, changed) {
  const box = document.createElement("div");
  box.className = "control";
  const input = choice(field.options, (value) => changed(value, true));
  input.id = id;
  box.append(labelled(field, id), input);
  return { box, show: (value) => { input.value = value; } };
}

export function choice(options, changed, words = (option) => option.replaceAll("_", " ")) {
  const input = document.createElement("select");
  for (const option of options) input.append(new Option(words(option), option));
  input.addEventListener("change", () => changed(input.value));
  return input;
}

export function makeControl(field, changed) {
  const id = `field-${field.name}`;
  if (field.kind === "switch") return switchControl(field, id, changed);
  if (field.kind === "choice") return choiceControl(field, id, changed);
  return numberControl(field, id, changed);
}
