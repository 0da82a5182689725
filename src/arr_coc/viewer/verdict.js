// The verdict: the question, the answer from the kept tokens beside the one from all, and what each cost.

const STAGES = ["texture", "scoring", "balancing", "allocating", "score", "gestalt", "encode", "prefill", "decode"];
const SHORT = 0.5; // milliseconds; a stage that took less was not run
const STAGE_ABOUT = {
  texture: "image features for choosing",
  scoring: "scoring the cells three ways",
  balancing: "weighing the three maps",
  allocating: "choosing the cells",
  score: "scoring, weighing and choosing",
  gestalt: "the coarse view",
  encode: "the vision encoder",
  prefill: "reading up to the first new token",
  decode: "the rest of the answer",
  other: "opening and preparing the image",
};

/** Milliseconds by stage; what no stage accounts for is "other". */
function stagesOf(ms) {
  const known = STAGES.filter((stage) => ms[stage] > SHORT).map((stage) => [stage, ms[stage]]);
  const rest = ms.total - known.reduce((sum, [, t]) => sum + t, 0);
  return rest > 0.5 ? [...known, ["other", rest]] : known;
}

/** Whether two answers' times compare: not where one of them found the image encoded by the other. */
function isComparable(ms, full) {
  return ms.encode > SHORT === full.encode > SHORT;
}

/** The answer from all tokens, where it is another than the answer itself. */
const fullOf = (view) => (view.mode === "full" ? null : view.full);

/** What must be said plainly about how a view came to be. */
function remarksOf(view) {
  const full = fullOf(view);
  const coarse = view.read - view.kept;
  const remarks = [
    [view.fallback, "The choice failed, so all tokens were used. The log has the reason."],
    [view.mode === "full", "Nothing was chosen: the stock model, which reads every token."],
    [view.mode === "weight", "No token was dropped: all were scaled by their relevance."],
    [view.mode === "compress", "Only a coarse view was read; the cells are those of this view."],
    [coarse > 0, `Also read: a coarse view of the whole image, ${plural(coarse, "token")}.`],
    [view.void, "Nothing in this image stands out, so an even grid of cells was kept."],
    [view.note !== null, view.note],
    [full && !isComparable(view.ms, full.ms), "The image was encoded once for both: times don't compare."],
  ];
  return remarks.filter(([isSo]) => isSo).map(([, text]) => remark(text));
}

const remark = (text) => el("p.ac-remark", {}, icon(ICONS.note, "note"), el("span", {}, text));

function headline(view) {
  const facts = [];
  const full = fullOf(view);
  if (full)
    facts.push(
      el(
        view.agree ? "span.ac-badge.ac-same" : "span.ac-badge.ac-differ",
        {},
        icon(view.agree ? ICONS.same : ICONS.differ, ""),
        view.agree ? "Same answer" : "Different answer",
      ),
    );
  const fewer = `${times(view.total / view.read)} fewer tokens`;
  if (view.read < view.total) facts.push(el("span.ac-badge", {}, fewer));
  if (full && isComparable(view.ms, full.ms)) {
    const speed = full.ms.total / view.ms.total;
    const isSame = Math.abs(Math.log(speed)) < 0.05;
    const words = speed > 1 ? `${times(speed)} faster` : `${times(1 / speed)} slower`;
    facts.push(el("span.ac-badge", {}, isSame ? "Same time" : words));
  }
  return el("div.ac-headline", {}, facts);
}

/** One way of answering: its answer, its tokens and its time, on the axes it shares with the other. */
function costRow({ title, answer, tokens, ms, total, longest, kind }) {
  const stages = stagesOf(ms);
  const spoken = stages.map(([stage, t]) => `${stage} ${milliseconds(t)}`).join(", ");
  return el(
    `div.ac-cost.ac-cost-${kind}`,
    { role: "group", "aria-label": title },
    el(
      "div.ac-cost-answer",
      {},
      el("span.ac-quiet", {}, title),
      el("span.ac-answer", {}, answer || "(no answer)"),
    ),
    el(
      "div.ac-cost-bars",
      {},
      el("span.ac-quiet", {}, "tokens"),
      bar(tokens.map(([n, part, name]) => [n / total, part, `${plural(n, "token")} ${name}`])),
      el(
        "span.ac-number",
        {},
        el("b", {}, count(tokens.reduce((sum, [n]) => sum + n, 0))),
        ` of ${count(total)}`,
      ),
      el("span.ac-quiet", {}, "time"),
      bar(
        stages.map(([stage, t]) => {
          const title = `${stage}: ${milliseconds(t)}, ${STAGE_ABOUT[stage]}`;
          return [t / longest, `stage-${stage}`, title];
        }),
      ),
      el("span.ac-number", {}, el("b", {}, milliseconds(ms.total)), el("span.ac-unseen", {}, ` (${spoken})`)),
    ),
  );
}

function stageLegend(view) {
  const full = fullOf(view);
  const sides = [view.ms, ...(full ? [full.ms] : [])].map((ms) => new Map(stagesOf(ms)));
  const used = [...STAGES, "other"].filter((stage) => sides.some((side) => side.has(stage)));
  const entries = used.map((stage) => {
    const numbers = sides.map(
      (side) => (side.has(stage) ? milliseconds(side.get(stage)).replace(" ms", "") : "–"),
    );
    return el(
      "li",
      { title: STAGE_ABOUT[stage] },
      el(`i.ac-swatch.ac-stage-${stage}`),
      stage,
      el("span.ac-quiet", {}, `${numbers.join(" / ")} ms`),
    );
  });
  return el("ul.ac-key.ac-stages", { "aria-label": "time of each stage" }, entries);
}

function verdict(view) {
  const coarse = view.read - view.kept;
  const full = fullOf(view);
  const longest = Math.max(view.ms.total, full ? full.ms.total : 0);
  const row = { total: Math.max(view.total, view.read), longest };
  const kept = [[view.kept, "kept", "kept"]];
  if (coarse > 0) kept.push([coarse, "coarse", "of the coarse view"]);
  const title = view.mode === "full"
    ? `From all ${plural(view.total, "token")}`
    : `From ${plural(view.read, "token")}`;
  return el(
    "section.ac-verdict",
    { "aria-label": "question and answers" },
    el("div.ac-head", {}, el("p.ac-question", {}, view.question), headline(view)),
    costRow({ ...row, title, answer: view.answer, tokens: kept, ms: view.ms, kind: "ours" }),
    full
      ? costRow({
          ...row,
          title: `From all ${count(view.total)}`,
          answer: full.text,
          tokens: [[view.total, "all", "read"]],
          ms: full.ms,
          kind: "full",
        })
      : null,
    stageLegend(view),
    remarksOf(view),
  );
}
