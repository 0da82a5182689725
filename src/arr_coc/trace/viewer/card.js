// The card of a cell: what it shows, where it is, how it scored, and why it lived or died. And the words of
// the question and the weights of the balancer.

function card(record, picture, store) {
  const element = el("section.ac-panel.ac-card", { "aria-label": "cell", "aria-live": "polite" });
  store.on(["cell"], ({ cell }) => {
    const { row, column } = record.place(cell);
    const { x, y, w, h } = record.box(cell);
    const isKept = record.reasons.has(cell);
    const where = `x ${Math.round(x)}–${Math.round(x + w)}, y ${Math.round(y)}–${Math.round(y + h)} px`;
    element.replaceChildren(
      el(
        "div.ac-card-head",
        {},
        cropOf(record, picture, cell),
        el(
          "div",
          {},
          el("strong.ac-title", {}, `Row ${row + 1}, column ${column + 1}`),
          el("span.ac-quiet", {}, where),
          el(
            `span.ac-badge.ac-${isKept ? "lived" : "died"}`,
            {},
            el(`i.ac-swatch.ac-${isKept ? "kept" : "dropped"}`),
            isKept ? "Kept" : "Dropped",
          ),
          el("p.ac-reason", {}, record.reason(cell)),
        ),
      ),
      scoreTable(record, cell),
      channelBars(record, cell) ?? "",
    );
  });
  return element;
}

function scoreTable(record, cell) {
  const rows = SCORES.filter((id) => record.layers.has(id)).map((id) => {
    const value = record.values(id)[cell];
    const weight = record.view.weights[id];
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        term(record.name(id), record.about(id)),
        weight === undefined ? null : el("span.ac-quiet", {}, `weight ${fixed(weight)}`),
      ),
      el("td.ac-wide", {}, bar([[value, "value"]])),
      el("td", {}, fixed(value)),
      el("td.ac-quiet", {}, `${count(record.rank(id, cell))} of ${count(record.ranked)}`),
    );
  });
  const head = ["map", "", "value", "rank"].map((text) => el("th", { scope: "col" }, text));
  return el("table.ac-table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
}

/** A number in [0, 1] with its name and a bar, as a line of a list. */
const measure = (name, value) =>
  el("li", {}, term(name), bar([[value, "value"]]), el("span.ac-number", {}, fixed(value)));

function channelBars(record, cell) {
  const channels = [...record.layers.values()].filter((layer) => layer.group === "texture");
  if (channels.length === 0) return null;
  const rows = channels.map(({ id, name }) => measure(name, record.values(id)[cell]));
  return el("div", {}, el("span.ac-quiet", {}, "texture of the cell"), el("ul.ac-channels", {}, rows));
}

/** The question as chips, stronger the more a word moves the choice; a click shows the word's own heat. */
function words(record, store) {
  const chips = record.view.words.map((word, i) => {
    const id = `word:${i}`;
    if (word.data === null) return word.text.trim() ? el("span.ac-word", {}, word.text) : null;
    const chip = el(
      "button.ac-word.ac-scored",
      {
        type: "button",
        "aria-label": `${word.text}, pull ${fixed(word.pull)}`,
        style: { "--pull": word.pull },
        onclick: () => store.set({ layer: store.state.layer === id ? "kept" : id }),
      },
      word.text,
      el("span.ac-pull", {}, fixed(word.pull)),
    );
    store.on(["layer"], ({ layer }) => chip.setAttribute("aria-pressed", layer === id));
    return explain(chip, `Pull ${fixed(word.pull)}: ${TERMS.pull}`);
  });
  return panel(
    "Words",
    ["the stronger, the more it moves the choice; click for its ", term("coupling"), " with the cells"],
    el("div.ac-words", {}, chips),
  );
}

/** The lower and the upper end of each tension. */
const TENSION_ENDS = {
  compress: ["particularize", "compress"],
  exploit: ["explore", "exploit"],
  focus: ["diversify", "focus"],
};

/** The weights of the three scorers and the three tensions of the balancer. */
function weights({ weights: gates, tensions }) {
  const gateRows = Object.entries(gates).map(([name, gate]) => measure(scorerWord(name), gate));
  const tensionRows = Object.entries(tensions).map(([name, value]) =>
    el(
      "li",
      {},
      term(TENSION_ENDS[name][0], TERMS[name]),
      el(
        "span.ac-tension",
        { role: "img", "aria-label": `${name} ${fixed(value)}` },
        el("i.ac-dot", { style: { left: `${100 * value}%` } }),
      ),
      el("span", {}, term(TENSION_ENDS[name][1], TERMS[name]), el("span.ac-number", {}, fixed(value))),
    ),
  );
  return panel(
    "Balance",
    ["the ", term("weights"), " of the three maps and the ", term("tensions"), " for this question"],
    el("ul.ac-channels.ac-gates", {}, gateRows),
    el("ul.ac-tensions", {}, tensionRows),
  );
}
