// Small tools: elements, a store, numbers. Text enters the page only as text, never as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** An element: "div.ac-card" names tag and classes, "on..." attributes listen, strings become text. */
function el(name, attributes = {}, ...children) {
  return build((tag) => document.createElement(tag), name, attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return build((tag) => document.createElementNS(SVG_NAMESPACE, tag), name, attributes, children);
}

function build(create, name, attributes, children) {
  const [tag, ...classes] = name.split(".");
  const made = create(tag);
  made.classList.add(...classes);
  const setStyle = ([property, value]) => made.style.setProperty(property, value);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") Object.entries(value).forEach(setStyle);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

/**
 * State that several parts of a view share. `on(keys, f)` calls f now and whenever one of the keys is set.
 */
function makeStore(initial) {
  const state = { ...initial };
  const listeners = [];
  return {
    state,
    set(patch) {
      Object.assign(state, patch);
      for (const [keys, f] of listeners) if (keys.some((key) => key in patch)) f(state);
    },
    on(keys, f) {
      listeners.push([keys, f]);
      f(state);
    },
  };
}

const count = (n) => n.toLocaleString("en-US");
const fixed = (x) => x.toFixed(2).replace("-", "−");
const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.095 ? 1 : 0)}%`;
const times = (x) => `${x < 9.95 ? x.toFixed(1) : count(Math.round(x))}×`;
const milliseconds = (x) => `${x < 9.95 ? x.toFixed(1) : count(Math.round(x))} ms`;
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** A bar for a share in [0, 1]; further parts lie beside it. Screen readers get the number next to it. */
function bar(parts) {
  return el(
    "span.ac-bar",
    { "aria-hidden": "true" },
    parts.map(([share, kind, title = null]) =>
      el(`span.ac-fill.ac-${kind}`, { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` }, title }),
    ),
  );
}

const icon = (path, label) =>
  svg("svg.ac-icon", { viewBox: "0 0 16 16", role: "img", "aria-label": label }, svg("path", { d: path }));
const ICONS = {
  same: "M3 8.5 6.5 12 13 4.5",
  differ: "M3 6h10M3 10h10M10.5 2.5l-5 11",
  note: "M8 7v5M8 4v.5",
  wrong: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2 15 14H1ZM8 6.5v3.5M8 11.7v.6",
};

/** One of a few choices as a row of radio buttons: [value, text, meaning]. The element has `choose(value)`. */
function segmented(label, choices, onchoose) {
  const group = `ac-${Math.random().toString(36).slice(2)}`;
  const inputs = choices.map(([value]) =>
    el("input", { type: "radio", name: group, value, onchange: () => onchoose(value) }),
  );
  const element = el(
    "div.ac-segmented",
    { role: "radiogroup", "aria-label": label },
    choices.map(([, text, meaning = null], i) => explain(el("label", {}, inputs[i], el("span", {}, text)), meaning, inputs[i])),
  );
  element.choose = (value) => inputs.forEach((input) => (input.checked = input.value === value));
  return element;
}

/** A list to choose from: groups of [label, [[value, text], ...]]. */
function choice(label, groups, onchoose) {
  const options = groups.map(([name, entries]) => {
    const made = entries.map(([value, text]) => el("option", { value }, text));
    return name ? el("optgroup", { label: name }, made) : made;
  });
  return el(
    "select.ac-select",
    { "aria-label": label, onchange: (e) => onchoose(e.target.value) },
    options.flat(),
  );
}

function panel(title, about, ...children) {
  return el(
    "section.ac-panel",
    { "aria-label": title },
    el(
      "div.ac-panel-head",
      {},
      el("strong.ac-title", {}, title),
      about ? el("span.ac-quiet", {}, about) : null,
    ),
    ...children,
  );
}
