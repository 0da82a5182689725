// What one sees and touches around the canvas: layer, opacity, grid, legend with numbers, value at hand.

const LAYER_TITLES = {
  kept: "what was kept",
  image: "the image alone",
  difference: "one layer minus another",
};

/** The layers to choose from: the first few as buttons, the rest in a list. */
function layerPicker(record, store, isFull) {
  const scores = SCORES.filter((id) => record.layers.has(id)).slice(0, isFull ? undefined : 1);
  const buttons = [
    ["kept", "Kept", LAYER_TITLES.kept],
    ...scores.map((id) => [id, capital(record.name(id)), record.about(id)]),
    ["image", "Image", LAYER_TITLES.image],
  ];
  const choose = (layer) => store.set({ layer });
  const picker = segmented("layer", buttons, choose);
  if (!isFull) {
    store.on(["layer"], ({ layer }) => picker.choose(layer));
    return picker;
  }
  const textures = [...record.layers.values()].filter((layer) => layer.group === "texture");
  const every = record.view.words.map((word, i) => [`word:${i}`, word.text, word.data]);
  const words = every.filter(([, , data]) => data);
  const read = (record.view.guidance?.spots ?? []).map(({ label }, i) => [`spot:${i}`, `“${label}”`]);
  const more = choice(
    "more layers",
    [
      ["", [["", "More layers"], ["difference", "difference of two"]]],
      ["texture", textures.map(({ id, name }) => [id, name])],
      ["words", words.map(([id, text]) => [id, `“${text}”`])],
      ["words on the page", read],
    ].filter(([, entries]) => entries.length > 0),
    (layer) => choose(layer || "kept"),
  );
  const maps = [...record.layers.values()].map(({ id, name }) => [id, name]);
  const sources = [["", [["all", "every cell"], ["kept", "kept"], ...maps]]];
  const pick = (i) => choice(
    i ? "layer taken away" : "layer to take from",
    sources,
    (id) => store.set({ minus: store.state.minus.map((old, j) => (i === j ? id : old)) }),
  );
  const sides = [pick(0), pick(1)];
  const difference = el("div.ac-difference", {}, sides[0], el("span", {}, "minus"), sides[1]);
  store.on(["layer", "minus"], ({ layer, minus }) => {
    picker.choose(layer);
    more.value = buttons.some(([id]) => id === layer) ? "" : layer;
    difference.hidden = layer !== "difference";
    sides.forEach((side, i) => (side.value = minus[i]));
  });
  return el("div.ac-pickers", {}, picker, more, difference);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function overlayControls(store) {
  const opacity = el("input", {
    type: "range",
    min: 0,
    max: 100,
    "aria-label": "opacity of the layer",
    oninput: (event) => store.set({ opacity: event.target.value / 100 }),
  });
  const grid = el(
    "input",
    { type: "checkbox", onchange: (event) => store.set({ grid: event.target.checked }) },
  );
  store.on(["opacity"], (state) => {
    opacity.value = Math.round(100 * state.opacity);
    opacity.style.setProperty("--fill", `${100 * state.opacity}%`);
  });
  store.on(["grid"], (state) => (grid.checked = state.grid));
  return el("div.ac-overlay", {}, el("label", {}, "Opacity", opacity), el("label", {}, grid, "Grid"));
}

/** What the colours mean, in numbers; a mark shows the value under the pointer. `hasKeys`: say what is drawn over the picture. */
function legend(record, store, hasKeys = true) {
  const mark = el("i.ac-mark", { "aria-hidden": "true" });
  const element = el("div.ac-legend");
  const valueAt = ({ layer, minus }, cell) =>
    layer === "difference" ? record.difference(minus)[cell] : record.values(layer)[cell];
  const mostOf = ({ layer }) => record.highest(layer);
  const isHeat = ({ layer }) => layer !== "kept" && layer !== "image";
  store.on(["layer", "shown"], (state) => {
    if (isHeat(state)) {
      const isDifference = state.layer === "difference";
      const ticks = isDifference ? ["−1", "−0.5", "0", "0.5", "1"] : QUARTERS.map((share) => rounded(share * mostOf(state)));
      const colours = Array.from(
        { length: 33 },
        (_, i) => (isDifference ? diverging(i / 16 - 1) : shade(record.palette, i / 32)),
      );
      const stops = colours.map((colour) => `rgb(${colour.map(Math.round).join(" ")})`);
      const style = { "background-image": `linear-gradient(to right, ${stops.join(",")})` };
      const scale = el("div.ac-scale", { style }, mark);
      element.replaceChildren(scale, el("div.ac-ticks", {}, ticks.map((tick) => el("span", {}, tick))));
    } else {
      const units = hasUnits(state) ? (record.view.units ?? []).length : 0;
      const keys = [[units > 0, "best", "most likely meant"], [units > 1, "next", "likely meant, too"], [true, "pale", "faded: not kept"]]
        .filter(([isDrawn]) => isDrawn && hasKeys && state.layer === "kept")
        .map(([, ...key]) => key);
      element.replaceChildren(
        el("ul.ac-key", {}, keys.map(([kind, text]) => el("li", {}, el(`i.ac-swatch.ac-${kind}`), text))),
      );
    }
  });
  store.on(["hover", "layer", "minus"], (state) => {
    mark.hidden = state.hover === null || !isHeat(state);
    if (mark.hidden) return;
    const value = valueAt(state, state.hover);
    mark.style.setProperty("left", `${100 * (state.layer === "difference" ? (value + 1) / 2 : value / mostOf(state))}%`);
  });
  return element;
}

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];
/** A number with two figures that count, however small it is. */
const rounded = (value) => String(Number(value.toPrecision(2)));

/** One line about the cell under the pointer or the keys, or about the layer. */
function readout(record, store) {
  const element = el("p.ac-readout", { "aria-live": "polite" });
  store.on(["hover", "layer", "minus", "shown"], (state) => {
    element.textContent = state.hover === null
      ? aboutLayer(record, state)
      : aboutCell(record, state, state.hover);
  });
  return element;
}

function aboutLayer(record, { layer, minus, shown }) {
  if (layer === "kept") return shown.label;
  const { width, height } = record.view;
  if (layer === "image") return `${width} × ${height} px, ${record.rows} × ${record.columns} cells`;
  if (layer === "difference") {
    const values = record.difference(minus);
    const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const size = largest === 0 ? "exactly 0 everywhere" : `at most ${fixed(largest)}`;
    return `${record.name(minus[0])} minus ${record.name(minus[1])}: ${size}`;
  }
  const values = record.values(layer);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const ofWords = { word: "what this word alone points at", spot: "where the guide reads this word" };
  const about = ofWords[layer.split(":")[0]] ?? record.layers.get(layer).about;
  const most = rounded(Math.max(...values));
  return `${record.name(layer)}${about ? `: ${about}` : ""} · mean ${fixed(mean)}, highest ${most}`;
}

function aboutCell(record, { layer, minus, shown }, cell) {
  const { row, column } = record.place(cell);
  const where = `row ${row + 1}, column ${column + 1}`;
  const isKept = shown.cells.includes(cell) ? "kept" : "dropped";
  const difference = layer === "difference" ? fixed(record.difference(minus)[cell]) : null;
  if (difference !== null) return `${where} · difference ${difference} · ${isKept}`;
  const shownLayer = ["kept", "image"].includes(layer) ? "balanced" : layer;
  return `${where} · ${record.name(shownLayer)} ${fixed(record.values(shownLayer)[cell])} · ${isKept}`;
}
