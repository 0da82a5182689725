// What was measured about one allocation: other budgets, other methods, faithfulness; and the scrub over
// budgets. A trace's file may hold anything there: what isn't as a probe writes it is not drawn.

const MAX_ENTRIES = 10_000;
const MOST = 2 ** 24; // of a count or a number: charts of larger ones have no ticks
const isText = (value) => typeof value === "string";
const isFlag = (value) => typeof value === "boolean";
const isNumber = (value) => Number.isFinite(value) && Math.abs(value) <= MOST;
const isCount = (value) => Number.isSafeInteger(value) && value > 0 && value <= MOST;
const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isMissingOr = (fits) => (value) => value === undefined || value === null || fits(value);
const isListOf = (fits) => (value) => Array.isArray(value) && value.length <= MAX_ENTRIES && value.every(fits);
const isNumbers = isListOf(isNumber);

/** Whether a probe of each name is as its chart needs it, for so many cells. */
const SOUND = {
  sweep: ({ points, smallest, right }) =>
    isText(right) &&
    isMissingOr(isCount)(smallest) &&
    isListOf((p) => isRecord(p) && isCount(p.kept) && isText(p.answer) && isFlag(p.right) && isNumber(p.logprob))(points) &&
    points.length > 0,
  faithfulness: ({ right, share, deletion, insertion, random, random_deletion: deleted, auc }) => {
    const isCurve = (values) => isNumbers(values) && values.length === share.length;
    const isBand = (draws) => isListOf((values) => isNumbers(values) && values.length > 0)(draws) && draws.length === share.length;
    return (
      isText(right) && isNumbers(share) && share.length > 0 && isCurve(deletion) && isCurve(insertion) &&
      isBand(random) && isMissingOr(isBand)(deleted) && isRecord(auc) && isNumbers(Object.values(auc))
    );
  },
  contenders: ({ budget, rows, left_out: leftOut }, cells) => {
    const isCell = (cell) => Number.isSafeInteger(cell) && cell >= 0 && cell < cells;
    const isRow = (row) =>
      isRecord(row) && isText(row.method) && /^[a-z]+$/.test(row.kind) && isNumber(row.tokens) &&
      isText(row.answer) && isFlag(row.right) && isMissingOr(isFlag)(row.true) && isMissingOr(isText)(row.note) &&
      isMissingOr(isNumber)(row.logprob) && isMissingOr(isListOf(isCell))(row.keep);
    const isLeftOut = (value) => isRecord(value) && isListOf(isText)(Object.values(value));
    return isCount(budget) && isListOf(isRow)(rows) && isMissingOr(isLeftOut)(leftOut);
  },
};

/** The probes of a view that can be drawn, by name, and the names of those that can't. */
function soundProbes({ probes }, cells) {
  const isSound = ([name, probe]) =>
    isRecord(probe) &&
    isMissingOr((source) => Object.hasOwn(AGREEMENT, source))(probe.right_from) &&
    isMissingOr(isText)(probe.note) &&
    SOUND[name](probe, cells);
  const own = isRecord(probes) ? Object.keys(SOUND).filter((name) => Object.hasOwn(probes, name)) : [];
  const measured = own.map((name) => [name, probes[name]]);
  return {
    sound: Object.fromEntries(measured.filter(isSound)),
    broken: measured.filter((entry) => !isSound(entry)).map(([name]) => name),
  };
}

/**
 * The counts of a sweep that say the same: the fewest, and from where on all larger ones do. They differ where an
 * answer comes, goes and comes back as tokens are added.
 */
function enoughOf({ points }) {
  const rising = [...points].sort((a, b) => a.kept - b.kept);
  const wrong = rising.findLastIndex((point) => !point.right);
  return { fewest: rising.find((point) => point.right)?.kept ?? null, always: rising[wrong + 1]?.kept ?? null };
}

/** Counts from 1 to N, near enough one another in ratio, with those that must be among them. */
function ladderOf(total, needed) {
  const steps = 200;
  const even = Array.from({ length: steps + 1 }, (_, i) => Math.round(total ** (i / steps)));
  return [...new Set([...even, ...needed])].sort((a, b) => a - b);
}

function ownSet(view) {
  const share = percent(view.kept / view.total);
  return {
    source: "own",
    cells: view.keep,
    label: `${count(view.kept)} of ${count(view.total)} cells kept (${share})`,
  };
}

function topSet(record, k) {
  return {
    source: "top",
    k,
    cells: record.ranking("balanced").slice(0, k),
    label: `the ${plural(k, "cell")} of highest relevance`,
  };
}

/** Its own choice, or where another number is asked for, as many of the highest relevance. */
const setOf = (record, k) => (k === record.view.kept ? ownSet(record.view) : topSet(record, k));

/** A slider over budgets: what the k most relevant cells are and, where it was measured, what they answer. */
function scrub(record, store) {
  const { view } = record;
  const sweep = record.probes.sound.sweep ?? { points: [] };
  const { fewest, always } = enoughOf(sweep);
  const ladder = ladderOf(record.cells, [view.kept, ...sweep.points.map((point) => point.kept)]);
  const place = (k) => (100 * ladder.indexOf(k)) / (ladder.length - 1);
  const show = (k) => store.set({ layer: "kept", shown: setOf(record, k) });
  const slider = el("input.ac-scrub", {
    type: "range",
    min: 0,
    max: ladder.length - 1,
    "aria-label": "number of tokens",
    oninput: (event) => show(ladder[Number(event.target.value)]),
  });
  const marks = [[view.kept, "own", `${count(view.kept)} kept`]];
  if (always !== null && always !== view.kept)
    marks.push([always, "smallest", `${count(always)} ${always === fewest ? "are" : "and more are"} enough`]);
  const ticks = marks.map(([k, kind, text]) =>
    el(
      `button.ac-scrub-mark${place(k) > 70 ? ".ac-mark-before" : ""}.ac-mark-${kind}`,
      {
        type: "button",
        style: { left: `${place(k)}%` },
        title: `show ${plural(k, "cell")}`,
        onclick: () => show(k),
      },
      text,
    ),
  );
  const [number, said] = [el("b.ac-big"), el("p.ac-said")];
  const reset = { type: "button", title: "back to its own choice", onclick: () => show(view.kept) };
  const back = el("button.ac-button", reset, "Reset");
  store.on(["shown"], ({ shown }) => {
    const k = shown.cells.length;
    const answer = answerFrom(view, sweep, shown);
    number.textContent = count(k);
    slider.value = ladder.reduce((best, n, i) => (n <= k ? i : best), 0);
    slider.style.setProperty("--fill", `${(100 * slider.value) / (ladder.length - 1)}%`);
    slider.setAttribute("aria-valuetext", `${plural(k, "token")}. ${answer}`);
    said.textContent = answer;
    back.disabled = shown.source === "own";
  });
  return panel(
    "Budget",
    "drag: what fewer or more tokens would keep",
    el("div.ac-scrub-head", {}, number, el("span.ac-quiet", {}, `of ${count(record.cells)} tokens`), back),
    el("div.ac-scrub-track", {}, slider, el("div.ac-scrub-marks", {}, ticks)),
    said,
  );
}

function answerFrom(view, sweep, shown) {
  if (shown.source === "own") return view.foreign ? "" : `Answer from these: ${view.answer}`;
  if (shown.source === "rival") return shown.label;
  const tried = sweep.points.filter((point) => point.kept <= shown.k).sort((a, b) => b.kept - a.kept)[0];
  if (sweep.points.length === 0) return "The answers at other budgets are not measured yet.";
  if (!tried) return "Too few to have been tried.";
  return `Answer from ${count(tried.kept)}: ${spoken(tried, agreementOf(sweep))}`;
}

/** What a probe calls right: the answer from all tokens, or one that it was given. */
const AGREEMENT = {
  "all tokens": { short: "as from all", right: "as from all tokens", wrong: "another than from all tokens" },
  given: { short: "right", right: "right", wrong: "wrong" },
};
const agreementOf = ({ right_from: source }) => AGREEMENT[source ?? "all tokens"];
const spoken = ({ answer, right }, words) => `${answer} (${words[right ? "right" : "wrong"]})`;
/** Why a probe ran in another mode than the answer, if it did. */
const modeNote = ({ note = null }) => (note ? el("p.ac-quiet", {}, note) : null);

function sweepChart(record, store) {
  const { sweep } = record.probes.sound;
  const points = [...sweep.points].sort((a, b) => a.kept - b.kept);
  const words = agreementOf(sweep);
  const show = (k) => store.set({ layer: "kept", shown: setOf(record, k) });
  const dots = points.map((point) => ({
    kind: point.right ? "right" : "wrong",
    title: `${plural(point.kept, "token")}: ${spoken(point, words)}, log-probability ${fixed(point.logprob)}`,
    onclick: () => show(point.kept),
  }));
  const marks = [{ x: record.view.kept, text: `${count(record.view.kept)} kept here`, kind: "own" }];
  const { fewest, always } = enoughOf(sweep);
  const least = `${count(fewest ?? 0)}: the fewest that answer ${words.right}`;
  if (fewest !== null) marks.push({ x: fewest, text: least, kind: "smallest" });
  const steady = `${count(always ?? 0)}: from here on, every number tried does`;
  if (always !== null && always !== fewest) marks.push({ x: always, text: steady, kind: "smallest" });
  const most = Math.max(record.cells, ...points.map((point) => point.kept));
  const chart = lineChart({
    label: `log-probability of the answer over the number of tokens, ${points.length} budgets`,
    x: { label: "tokens kept", scale: "log", range: [1, most], ticks: countTicks(most) },
    y: {
      label: `log-probability per token of “${sweep.right}”`,
      range: rangeOf([0, ...points.map((point) => point.logprob)]),
    },
    lines: [{ name: "", kind: "ours", points: points.map((point) => [point.kept, point.logprob]), dots }],
    marks,
  });
  chart.querySelector(".ac-key").prepend(
    el("li", {}, el("i.ac-swatch.ac-swatch-dot.ac-point-right"), words.right),
    el("li", {}, el("i.ac-swatch.ac-swatch-dot.ac-point-wrong"), words.wrong),
  );
  const about = ["how likely that answer stays (", term("log-prob"), ")"];
  return panel("How few would say the same", about, chart, modeNote(sweep));
}

function faithfulnessChart(probe) {
  const { right, share, deletion, insertion, random, random_deletion: deleted, auc } = probe;
  const bandOf = (draws) => share.map((at, i) => [at, Math.min(...draws[i]), Math.max(...draws[i])]);
  const bands = [{ name: "insertion at random", kind: "random", points: bandOf(random) }];
  if (deleted) bands.push({ name: "deletion at random", kind: "random-deletion", points: bandOf(deleted) });
  const named = (name, value) => (value === undefined ? name : `${name}, area ${fixed(value)}`);
  bands[0].name = named(bands[0].name, auc.random);
  const areas = Object.entries(auc).map(([name, area]) => `${name} ${fixed(area)}`);
  const every = [...deletion, ...insertion, ...random.flat(), ...(deleted ?? []).flat()];
  const chart = lineChart({
    label: `faithfulness, area under ${areas.join(", ")}`,
    x: {
      label: "share of the cells, most relevant first",
      range: [0, 1],
      ticks: [0, 0.25, 0.5, 0.75, 1].map((at) => [at, percent(at)]),
    },
    y: { label: `log-probability per token of “${right}”`, range: rangeOf(every) },
    lines: [
      {
        name: named("only these given", auc.insertion),
        kind: "ours",
        points: share.map((at, i) => [at, insertion[i]]),
      },
      {
        name: named("these taken away", auc.deletion),
        kind: "rival",
        points: share.map((at, i) => [at, deletion[i]]),
      },
    ],
    bands,
  });
  const about = ["as cells go (", term("deletion"), ") and come (", term("insertion"), "), most relevant first"];
  return panel("Does it use what it points at", about, chart, modeNote(probe));
}

/** Other ways to choose as many tokens; a click shows what they keep. */
function contendersTable(record, store) {
  const probe = record.probes.sound.contenders;
  const { budget, rows } = probe;
  const leftOut = probe.left_out ?? {};
  const words = agreementOf(probe);
  const hasTruth = rows.some((row) => typeof row.true === "boolean");
  const entries = rows.map((row) => {
    const toggle = () => {
      const isShown = store.state.shown.method === row.method;
      const shown = isShown || row.kind === "ours" ? ownSet(record.view) : rivalSet(record, row);
      store.set({ layer: "kept", shown });
    };
    const method = row.keep
      ? el("button.ac-link", { type: "button", title: "show what it keeps", onclick: toggle }, row.method)
      : row.method;
    const entry = el(
      `tr.ac-row-${row.kind}`,
      {},
      el("th", { scope: "row" }, method, el("span.ac-quiet", {}, row.kind === "ours" ? "" : row.kind)),
      el("td", {}, count(Math.round(row.tokens))),
      el("td.ac-said", {}, row.answer),
      el("td", {}, icon(row.right ? ICONS.same : ICONS.differ, words[row.right ? "right" : "wrong"])),
      hasTruth ? el("td", {}, icon(row.true ? ICONS.same : ICONS.wrong, row.true ? "true" : "not true")) : null,
      el("td", {}, (row.logprob ?? null) === null ? "–" : fixed(row.logprob)),
    );
    store.on(["shown"], ({ shown }) => {
      const isOurs = shown.source === "own" && row.kind === "ours";
      entry.toggleAttribute("aria-current", isOurs || shown.method === row.method);
    });
    return entry;
  });
  const columns = ["method", "tokens read", "answer", words.short, ...(hasTruth ? ["true"] : []), "log-prob"];
  const head = columns.map((text) => el("th", { scope: "col" }, term(text)));
  const table = el(
    "table.ac-table.ac-contenders",
    {},
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, entries),
  );
  const missing = Object.entries(leftOut).map(
    ([method, reason]) => el("p.ac-quiet", {}, `${method} left out: ${reason}`),
  );
  return panel(
    "Other ways to choose",
    `each keeps ${plural(budget, "token")}`,
    el("div.ac-scroll", {}, table),
    rows.filter((row) => row.note).map(({ method, note }) => el("p.ac-quiet", {}, `${method} ${note}`)),
    missing,
    modeNote(probe),
  );
}

function rivalSet(record, { method, keep, answer }) {
  const { iou } = compareSets(record.view.keep, keep);
  const what = `${method} keeps these ${count(keep.length)} and answers “${answer}”`;
  const label = `${what} · IoU with ours ${fixed(iou)}`;
  return { source: "rival", method, cells: keep, label };
}

function probePanels(record, store) {
  const { sound, broken } = record.probes;
  const panels = [];
  if (sound.sweep) panels.push(sweepChart(record, store));
  if (sound.faithfulness) panels.push(faithfulnessChart(sound.faithfulness));
  if (sound.contenders) panels.push(contendersTable(record, store));
  if (broken.length > 0) panels.push(remark(`Measured, but not in a form that can be drawn: ${broken.join(", ")}.`));
  return panels;
}
