// What stands beside a choice: the evidence, where it is known, and which word the guide read where.

const AROUND = 0.12; // cells between a box and its outline, so that it covers no print

/** How much of the evidence a kept set holds: cells, hits, and per box whether all of its cells were kept. */
function recallOf(view, cells) {
  const kept = new Set(cells);
  const every = new Set(view.evidence.flatMap((box) => box.cells));
  const hits = view.evidence.map((box) => box.cells.length > 0 && box.cells.every((cell) => kept.has(cell)));
  return { every: every.size, kept: [...every].filter((cell) => kept.has(cell)).length, hits };
}

/** The outline of a box in px, in units of cells. */
function boxOutline({ view, rows, columns }, [x0, y0, x1, y1], kind, around = AROUND) {
  const [x, y] = [columns / view.width, rows / view.height];
  const place = {
    x: x0 * x - around,
    y: y0 * y - around,
    width: (x1 - x0) * x + 2 * around,
    height: (y1 - y0) * y + 2 * around,
    rx: AROUND,
  };
  return [svg("rect.ac-evidence-halo", place), svg(`rect.ac-evidence.ac-${kind}`, place)];
}

/** The outlines of the evidence. */
function evidenceOutlines(record, cells) {
  const { hits } = recallOf(record.view, cells);
  return record.view.evidence.flatMap(({ box }, i) => boxOutline(record, box, hits[i] ? "hit" : "missed"));
}

/** Whether the outlines of the units are of what is drawn: of its own choice, over the picture. */
const hasUnits = ({ layer, shown }) => layer === "kept" && shown.source === "own";

/** The outlines of the rows, lines or things that are likely meant, the best last, on top of the others. */
const unitOutlines = (record) =>
  (record.view.units ?? []).map((box, i) => boxOutline(record, box, i === 0 ? "best" : "next", 2 * AROUND)).reverse().flat();

/** The recall of the kept cells in a line, which follows the budget; nothing where no evidence is known. */
function recallLine(record, store) {
  const { view } = record;
  if (!view.evidence?.some((box) => box.cells.length > 0)) return null;
  const element = el("p.ac-recall", { role: "status" });
  store.on(["shown"], ({ shown }) => {
    const { every, kept, hits } = recallOf(view, shown.cells);
    const missed = hits.filter((isHit) => !isHit).length;
    const boxes = [[hits.length - missed, "hit"], [missed, "missed"]].filter(([n]) => n > 0);
    element.replaceChildren(
      el("b", {}, `${percent(kept / every)} of the evidence kept`),
      el("span.ac-quiet", {}, `${count(kept)} of ${plural(every, "cell")}`),
      ...boxes.map(([n, kind]) => el("span.ac-quiet", {}, el(`i.ac-swatch.ac-box-${kind}`), ` ${n} ${kind}`)),
    );
  });
  return element;
}

/** What the guide says of itself. */
function assurance({ says, badge: said, about }) {
  const badge = el(`span.ac-badge.ac-says-${says}`, {}, said);
  return el("p.ac-assurance", {}, badge, el("span.ac-quiet", {}, about));
}

/** Each word with what was read for it, how alike, and where: pointing at one shows its map, a click keeps it. */
function spots(record, store) {
  const { guidance } = record.view;
  const pinned = { layer: store.state.layer, rest: store.state.layer }; // what stays when nothing is pointed at
  let isPeeking = false;
  store.on(["layer"], ({ layer }) => {
    if (isPeeking) return;
    pinned.layer = layer;
    if (!layer.startsWith("spot:")) pinned.rest = layer;
  });
  const rows = guidance.spots.map((spot, i) => {
    const id = `spot:${i}`;
    const [y, x] = spot.place;
    const at = Math.min(record.rows - 1, Math.floor(y * record.rows)) * record.columns;
    const cell = at + Math.min(record.columns - 1, Math.floor(x * record.columns));
    const peek = () => {
      isPeeking = true;
      store.set({ layer: id, hover: cell });
    };
    const leave = () => {
      isPeeking = false;
      store.set({ layer: pinned.layer, hover: null });
    };
    const pin = () => {
      isPeeking = false;
      store.set({ layer: pinned.layer === id ? pinned.rest : id, hover: cell });
    };
    const button = el(
      "button.ac-spot",
      {
        type: "button",
        "aria-label": `${spot.label}, likeness ${fixed(spot.likeness)}${spot.matches ? "" : ", no match"}`,
        onclick: pin,
        onpointerenter: peek,
        onpointerleave: leave,
      },
      el("span.ac-spot-word", {}, spot.label),
      bar([[spot.likeness, spot.matches ? "matched" : "unmatched"]]),
      el("span.ac-number", {}, spot.told),
    );
    store.on(["layer"], () => button.setAttribute("aria-pressed", pinned.layer === id));
    return el("li", {}, button);
  });
  return rows.length > 0
    ? el("ul.ac-spots", { "aria-label": "words on the page" }, rows)
    : el("p.ac-quiet", {}, "No word of the question can be looked for on the page.");
}

/** The guide's words as a panel beside an answer; nothing where the guide wasn't asked. */
function guidancePanel(record, store) {
  const { guidance } = record.view;
  if (!guidance) return null;
  return panel("Words on the page", "point at a word for its map", assurance(guidance), spots(record, store));
}

const GATES = {
  participatory: ["Is it asked for?", "what the question asks for"],
  perspectival: ["Does it stand out?", "what stands out"],
  information: ["Is there much in it?", "how much is in them"],
};
const NEARLY = 0.6; // of the highest weight, from which another map is named beside its own

/** Which maps decided, in a sentence. */
function leading(weights) {
  const most = Math.max(...Object.values(weights));
  const names = Object.keys(GATES).filter((name) => weights[name] >= NEARLY * most);
  return `The cells were chosen by ${names.map((name) => GATES[name][1]).join(" and by ")}.`;
}

/** How much each map counted for this question: a sentence and three bars; and what else must be known. */
function gates({ weights, note }) {
  const rows = Object.entries(GATES).map(([name, [text]]) =>
    el(
      "li",
      {},
      term(text, `${capital(scorerWord(name))}. ${TERMS[scorerWord(name)]}`),
      bar([[weights[name], "value"]]),
      el("span.ac-number", {}, fixed(weights[name])),
    ),
  );
  const remarks = note ? el("p.ac-quiet", {}, `${capital(note)}.`) : null;
  return el("div.ac-why", {}, el("p", {}, leading(weights)), el("ul.ac-channels.ac-gates", { "aria-label": "weight of each map" }, rows), remarks);
}

/** A choice without an answer: where it would look, the cells that it would keep, the words it goes by and the weights of the maps. */
function look(element, view) {
  const draw = (host, [current], [picture], former) => {
    const record = new AllocationRecord(current);
    const state = initialState(record, former);
    const layer = state.layer.startsWith("spot:") ? "kept" : state.layer;
    const store = makeStore({ ...state, layer, cell: null });
    const hasPlace = !["overview", "unusual"].includes(current.guidance?.says); // else its words are none of a page's
    host.classList.add("ac-simple", "ac-look");
    host.replaceChildren(
      el(
        "div.ac-look-columns",
        {},
        canvasPanel(record, picture, store, false, { label: "Where it would look" }),
        el(
          "div.ac-look-side",
          {},
          current.guidance ? el("div", {}, assurance(current.guidance), hasPlace ? spots(record, store) : null) : null,
          gates(current),
        ),
      ),
    );
    return store;
  };
  const speak = ({ guidance, weights }) => [guidance ? `${guidance.badge}. ${guidance.about}` : "", leading(weights)].join(" ");
  return place(element, draw, [view], { speak, ofImages: true });
}
