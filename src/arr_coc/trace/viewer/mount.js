// The views as a whole: one trace (mount), two beside each other (pair), the balance over several questions
// (history). Each fills an element and returns a handle {update, destroy, ready}.

/**
 * Fill an element now and on every update; what was chosen in it lives on from one view to the next.
 * `speak` makes the sentence that screen readers read out after an update; `ofImages`: no clips are drawn.
 */
function place(element, draw, views, { speak = null, load = loadPicture, ofImages = false } = {}) {
  const host = el("div.arrcoc");
  const live = el("p.arrcoc-live", { role: "status", "aria-live": "polite" });
  element.replaceChildren(host, ...(speak === null ? [] : [live]));
  const pictures = new Map();
  let store = null;
  let turn = 0;
  const pictureOf = async (view) => {
    if (!pictures.has(view.image)) pictures.set(view.image, await load(view));
    return pictures.get(view.image);
  };
  const say = (text) => host.replaceChildren(el("p.ac-empty", {}, text));
  const show = async (given) => {
    const mine = ++turn;
    const wrong = given.find((view) => view !== null && view.format !== FORMAT);
    if (wrong) return say(`This is not a view that can be drawn (format ${wrong.format}, need ${FORMAT}).`);
    if (given.length === 0 || given.includes(null)) return say("Ask a question to see what is read.");
    if (ofImages && !given.every(imageOf)) return say("This is not a view that can be drawn here: it is of a clip or of several images.");
    const shown = given.map((view) => imageOf(view) ?? view);
    const needed = new Set(shown.map((view) => view.image));
    const loaded = await Promise.all(shown.map(pictureOf));
    if (mine !== turn) return undefined; // a newer view came while the picture was decoded
    for (const image of pictures.keys()) if (!needed.has(image)) pictures.delete(image);
    if (speak !== null && mine > 1) live.textContent = speak(shown[0]);
    store = draw(host, shown, loaded, store?.state ?? {});
    return undefined;
  };
  const fail = (error) => {
    console.error(error);
    say(`This trace can't be drawn: ${error.message}`);
  };
  const handle = {
    update: (...next) => (handle.ready = show(next.flat()).catch(fail)),
    destroy: () => {
      turn++;
      host.remove();
    },
  };
  handle.update(views);
  return handle;
}

function initialState(record, former, layer = "kept") {
  const known = (id) => ["kept", "image", "all", "difference"].includes(id) || record.layers.has(id);
  return {
    layer: [former.layer, layer].find(known) ?? "kept",
    minus: former.minus && former.minus.every(known) ? former.minus : ["all", "kept"],
    opacity: former.opacity ?? 1,
    grid: former.grid ?? false,
    shown: ownSet(record.view),
    hover: null,
    cell: former.cell < record.cells ? former.cell : record.view.order[0],
  };
}

function canvasPanel(record, picture, store, isFull, options) {
  return el(
    "section.ac-canvas",
    { "aria-label": "token canvas" },
    layerPicker(record, store, isFull),
    el("div.ac-frame", {}, stage(record, picture, store, options)),
    recallLine(record, store) ?? "",
    el("div.ac-below", {}, readout(record, store), overlayControls(store)),
    legend(record, store),
  );
}

/**
 * One trace. `detail`: "simple" is the verdict and the canvas, "full" everything, "closer" everything but the
 * verdict, for a place where that stands already. `cell`, of a clip `step`, is chosen at first; `onselect` is
 * told {index, row, column} of each cell that is chosen, and of a clip its step.
 */
function mount(element, view, { detail = "simple", onselect = null, cell = null, step = null } = {}) {
  const isFull = detail !== "simple";
  const isAlone = detail !== "closer";
  const draw = (host, [shown], [picture], former) => {
    if (!shown.image) return drawClips(host, shown, former, { isFull, isAlone, onselect, step });
    const record = new AllocationRecord(shown);
    const state = initialState(record, former, isAlone ? "kept" : "balanced");
    const isFirst = former.cell === undefined;
    const chosen = isFirst && cell !== null && cell < record.cells ? cell : state.cell;
    const store = makeStore({ ...state, cell: isFull ? chosen : null });
    const canvas = canvasPanel(record, picture, store, isFull, { onselect });
    const side = el("div.ac-side", {}, isFull ? sidePanels(record, picture, store) : null);
    host.classList.toggle("ac-simple", !isFull);
    host.replaceChildren(
      isAlone ? verdict(shown) : "",
      isFull ? el("div.ac-columns", {}, canvas, side) : canvas,
      isAlone && shown.foreign ? foldedAnswer(shown) : "",
      isFull ? el("div.ac-panels", {}, scrub(record, store), weights(shown), probePanels(record, store)) : "",
    );
    return store;
  };
  const load = async (given) => (given.image ? loadPicture(given) : null);
  return place(element, draw, [view], { speak: isAlone ? spokenVerdict : null, load });
}

function sidePanels(record, picture, store) {
  const hasWords = record.view.words.length > 0;
  return [guidancePanel(record, store), hasWords ? words(record, store) : null, card(record, picture, store)].filter(Boolean);
}

/** Two traces beside each other: two questions about one image, or two checkpoints. */
function pair(element, viewA, viewB, { labels = ["A", "B"] } = {}) {
  const draw = (host, views, pictures, former) => {
    const records = views.map((view) => new AllocationRecord(view));
    const store = makeStore({ ...initialState(records[0], former), cell: null });
    const isSameGrid = String(views[0].grid) === String(views[1].grid);
    const sets = isSameGrid ? compareSets(views[0].keep, views[1].keep) : null;
    const sides = records.map((record, i) => {
      const own = sets && [["both", sets.both], i === 0 ? ["only-a", sets.onlyA] : ["only-b", sets.onlyB]];
      const options = {
        label: labels[i],
        cellsOf: () => record.view.keep,
        outlinesOf: () => own ?? [["kept", record.view.keep]],
      };
      // Where the grids differ, a cell of one is none of the other: each side has its own pointer.
      const shared = isSameGrid ? store : follower(store, record);
      return el(
        "section.ac-side-of",
        { "aria-label": labels[i] },
        el(
          "div.ac-panel-head",
          {},
          el("strong.ac-title", {}, labels[i]),
          el("span.ac-quiet", {}, `${count(record.view.kept)} of ${count(record.view.total)}`),
        ),
        el("p.ac-question", {}, record.view.question),
        el("p.ac-answer", {}, record.view.answer || "(no answer)"),
        warningsOf(record.view),
        el("div.ac-frame", {}, stage(record, pictures[i], shared, options)),
      );
    });
    host.replaceChildren(
      overlap(sets, labels),
      el("div.ac-bar-top", {}, layerPicker(records[0], store, false), overlayControls(store)),
      el("div.ac-pair", {}, sides),
      isSameGrid ? pairReadout(records, store, labels) : "",
      legend(records[0], store, false),
    );
    return store;
  };
  return place(element, draw, [viewA, viewB], { ofImages: true });
}

/** A store that takes layer and opacity of another, with a pointer of its own. */
function follower(store, record) {
  const own = makeStore({ ...store.state, shown: ownSet(record.view), hover: null });
  store.on(["layer", "opacity", "grid"], ({ layer, opacity, grid }) => own.set({ layer, opacity, grid }));
  return own;
}

function overlap(sets, labels) {
  if (sets === null) return remark("The grids differ, so the kept sets have no overlap to measure.");
  const parts = [
    ["only-a", sets.onlyA, `only in ${labels[0]}`],
    ["both", sets.both, "in both"],
    ["only-b", sets.onlyB, `only in ${labels[1]}`],
  ];
  const all = parts.reduce((sum, [, cells]) => sum + cells.length, 0);
  const keys = parts.map(
    ([kind, cells, text]) => el(
      "li",
      {},
      el(`i.ac-swatch.ac-swatch-line.ac-of-${kind}`),
      `${text}: ${count(cells.length)}`,
    ),
  );
  return el(
    "section.ac-overlap",
    { "aria-label": "overlap of the kept sets" },
    el(
      "div",
      {},
      el("b.ac-big.ac-iou", {}, fixed(sets.iou)),
      el("span.ac-quiet", {}, term("IoU"), " of the kept sets"),
    ),
    bar(parts.map(([kind, cells, text]) => [cells.length / all, `of-${kind}`, `${text}: ${cells.length}`])),
    el("ul.ac-key", {}, keys),
  );
}

function pairReadout(records, store, labels) {
  const element = el("p.ac-readout", { "aria-live": "polite" });
  store.on(["hover", "layer"], (state) => {
    const cell = state.hover;
    const about = (record) => aboutCell(record, { ...state, shown: ownSet(record.view) }, cell);
    const sides = cell === null ? [] : records.map((record, i) => `${labels[i]}: ${about(record)}`);
    element.textContent = sides.join(" ‖ ") || "Point at a cell to read both values.";
  });
  return element;
}

/** The balancer over several questions: weights and tensions of each, and which gates are stuck at an end. */
function history(element, views) {
  const draw = (host, given) => {
    const chartOf = (key, title, about) => {
      const names = Object.keys(given[0][key]);
      const lines = names.map((name, i) => ({
        name: scorerWord(name),
        kind: `series-${i + 1}`,
        points: given.map((view, n) => [n + 1, view[key][name]]),
        dots: given.map((view) => {
          const title = `${scorerWord(name)} ${fixed(view[key][name])}: ${view.question}`;
          return { kind: `series-${i + 1}`, title };
        }),
      }));
      const every = Math.ceil(given.length / 12);
      const ticks = given.map((_, n) => [n + 1, String(n + 1)]).filter((_, n) => n % every === 0);
      const x = { label: "question", range: [0.8, given.length + 0.2], ticks };
      const label = `${title} over ${plural(given.length, "question")}`;
      const chart = lineChart({ label, x, y: { label: "", range: [0, 1] }, lines });
      const stuck = names
        .map(
          (name) => [name, given.filter((view) => view[key][name] < 0.01 || view[key][name] > 0.99).length],
        )
        .filter(([, n]) => n > 0)
        .map(
          ([name, n]) =>
            el("p.ac-quiet", {}, `${scorerWord(name)} is at an end of its range in ${n} of ${given.length}`),
        );
      return panel(title, about, chart, stuck);
    };
    const list = given.map(({ question, answer = "" }) => el("li", {}, question, " ", el("b", {}, answer)));
    host.replaceChildren(
      el(
        "div.ac-panels",
        {},
        chartOf("weights", "Weights", TERMS.weights),
        chartOf("tensions", "Tensions", TERMS.tensions),
      ),
      el("ol.ac-questions", {}, list),
    );
    return null;
  };
  return place(element, draw, views, { load: async () => null });
}
