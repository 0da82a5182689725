// What was measured about one allocation: other budgets, other methods, faithfulness; and the scrub over
// budgets.

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
  const sweep = view.probes.sweep ?? { points: [], smallest: null };
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
  if (sweep.smallest !== null && sweep.smallest !== view.kept)
    marks.push([sweep.smallest, "smallest", `${count(sweep.smallest)} are enough`]);
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
  if (shown.source === "own") return `Answer from these: ${view.answer}`;
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
const agreementOf = ({ right_from: source = "all tokens" }) => AGREEMENT[source];
const spoken = ({ answer, right }, words) => `${answer} (${words[right ? "right" : "wrong"]})`;
/** Why a probe ran in another mode than the answer, if it did. */
const modeNote = ({ note = null }) => (note ? el("p.ac-quiet", {}, note) : null);

function sweepChart(record, store) {
  const { sweep } = record.view.probes;
  const points = [...sweep.points].sort((a, b) => a.kept - b.kept);
  const words = agreementOf(sweep);
  const show = (k) => store.set({ layer: "kept", shown: setOf(record, k) });
  const dots = points.map((point) => ({
    kind: point.right ? "right" : "wrong",
    title: `${plural(point.kept, "token")}: ${spoken(point, words)}, log-probability ${fixed(point.logprob)}`,
    onclick: () => show(point.kept),
  }));
  const marks = [{ x: record.view.kept, text: `${count(record.view.kept)} kept here`, kind: "own" }];
  const fewest = `${count(sweep.smallest ?? 0)}: the fewest that answer ${words.right}`;
  if (sweep.smallest !== null) marks.push({ x: sweep.smallest, text: fewest, kind: "smallest" });
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
  const probe = record.view.probes.contenders;
  const { budget, rows, left_out: leftOut = {} } = probe;
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
      el("td", {}, row.logprob === null ? "–" : fixed(row.logprob)),
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
  const { probes } = record.view;
  const panels = [];
  if (probes.sweep) panels.push(sweepChart(record, store));
  if (probes.faithfulness) panels.push(faithfulnessChart(probes.faithfulness));
  if (probes.contenders) panels.push(contendersTable(record, store));
  return panels;
}
