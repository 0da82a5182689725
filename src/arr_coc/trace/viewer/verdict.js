// The verdict: the question, the answer from the kept tokens beside the one from all, and what each cost.

const STAGES = ["texture", "scoring", "balancing", "allocating", "score", "gestalt", "encode", "prefill", "decode"];
const SHORT = 0.5; // milliseconds; a stage that took less was not run
const STAGE_ABOUT = {
  texture: "image features for choosing",
  scoring: "scoring the cells three ways",
  balancing: "weighing the three maps",
  allocating: "choosing the cells",
  score: "scoring, weighing and choosing",
  gestalt: "making the coarse view of the whole image",
  encode: "the vision encoder",
  prefill: "reading up to the first new token",
  decode: "the rest of the answer",
  other: "opening and preparing the image",
};

const STAGE_NAMES = { gestalt: "coarse view" };
const stageName = (stage) => STAGE_NAMES[stage] ?? stage;

/** Milliseconds by stage; what no stage accounts for is "other". */
function stagesOf(ms) {
  const known = STAGES.filter((stage) => ms[stage] > SHORT).map((stage) => [stage, ms[stage]]);
  const rest = ms.total - known.reduce((sum, [, t]) => sum + t, 0);
  return rest > 0.5 ? [...known, ["other", rest]] : known;
}

/** Whether two answers' times compare: not where one of them found the image encoded by the other. */
function isComparable(ms, full) {
  const hasEncoded = ({ encode = 0, gestalt = 0 }) => encode > SHORT || gestalt > SHORT;
  return hasEncoded(ms) === hasEncoded(full);
}

/** The answer from all tokens, where it is another than the answer itself. */
const fullOf = (view) => (view.stock ? null : view.full);

/** What a reader must know before the answer is believed; it stands above the answer. */
function warningsOf(view) {
  const warnings = [
    [view.fallback, "The choice failed, so all tokens were used. The log has the reason."],
    [Boolean(view.note), capital(view.note ?? "")],
  ];
  return warnings.filter(([isSo]) => isSo).map(
    ([, text]) => el("p.ac-remark.ac-warning", { role: "note" }, icon(ICONS.warning, "note"), el("span", {}, text)),
  );
}

/** What a view is about, in words. */
function subjectOf(view) {
  if (view.image) return "this image";
  return view.strips.length === 1 ? "this clip" : "these images and clips";
}

/** How many tokens were of a coarse view; 0 where cells were magnified, whose tokens can't be told from it. */
const coarseOf = (view) => (view.magnified ? 0 : view.read - view.kept);

/** Into how many tokens magnified cells went. */
function magnifiedText(view) {
  if (!view.magnified) return "";
  const finer = view.magnified.map(times).join(", ");
  const coarse = view.gestalt ? ", a coarse view of the whole image among them" : "";
  return `Magnified: ${plural(view.kept, "cell")} kept, read ${finer} finer than shown here, in ${plural(view.read, "token")}${coarse}.`;
}

/** What must be said plainly about how a view came to be. */
function remarksOf(view) {
  const full = fullOf(view);
  const coarse = coarseOf(view);
  const remarks = [
    [Boolean(view.mode_remark), view.mode_remark],
    [Boolean(view.magnified), magnifiedText(view)],
    [coarse > 0, ["Also read: the ", term("gestalt"), `, a coarse view of the whole image, ${plural(coarse, "token")}.`]],
    [view.void, "Nothing in this image stands out, so an even grid of cells was kept."],
    [view.true_answers?.length > 0, `Known to be true: ${view.true_answers?.join(" | ")}`],
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
function costRow({ title, answer, isTrue, tokens, ms, total, longest, kind }) {
  const stages = stagesOf(ms);
  const spoken = stages.map(([stage, t]) => `${stageName(stage)} ${milliseconds(t)}`).join(", ");
  return el(
    `div.ac-cost.ac-cost-${kind}`,
    { role: "group", "aria-label": title },
    el(
      "div.ac-cost-answer",
      {},
      el("span.ac-quiet", {}, title),
      el("span.ac-answer", {}, answer || "(no answer)"),
      truth(isTrue),
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
          const title = `${stageName(stage)}: ${milliseconds(t)}, ${STAGE_ABOUT[stage]}`;
          return [t / longest, `stage-${stage}`, title];
        }),
      ),
      el("span.ac-number", {}, el("b", {}, milliseconds(ms.total)), el("span.ac-unseen", {}, ` (${spoken})`)),
    ),
  );
}

/** Whether an answer is true, where that is known: not the same as being the answer from all tokens. */
function truth(isTrue) {
  if (typeof isTrue !== "boolean") return null;
  const [kind, path, text] = isTrue ? ["same", ICONS.same, "True"] : ["differ", ICONS.wrong, "Not true"];
  return el("span", {}, el(`span.ac-badge.ac-${kind}`, {}, icon(path, ""), text));
}

/** What a further question about the image takes, and what the times were taken on. */
function timing(view) {
  const full = fullOf(view);
  const { again = null, machine = "" } = view;
  const facts = [];
  if (again !== null) {
    const whole = full?.again ? `, from all ${milliseconds(full.again.total)}` : "";
    facts.push(`A further question about ${subjectOf(view)}: ${milliseconds(again.total)}${whole}.`);
  }
  if (machine) facts.push(`Times on ${machine}.`);
  return facts.length > 0 ? el("p.ac-quiet", {}, facts.join(" ")) : null;
}

function stageLegend(view) {
  const full = fullOf(view);
  const sides = [view.ms, ...(full ? [full.ms] : [])].map((ms) => new Map(stagesOf(ms)));
  const used = [...STAGES, "other"].filter((stage) => sides.some((side) => side.has(stage)));
  const entries = used.map((stage) => {
    const numbers = sides.map(
      (side) => (side.has(stage) ? milliseconds(side.get(stage)).replace(" ms", "") : "–"),
    );
    const entry = el(
      "li",
      {},
      el(`i.ac-swatch.ac-stage-${stage}`),
      stageName(stage),
      el("span.ac-quiet", {}, `${numbers.join(" / ")} ms`),
    );
    return explain(entry, STAGE_ABOUT[stage]);
  });
  return el("ul.ac-key.ac-stages", { "aria-label": "time of each stage" }, entries);
}

/** The question and its answers; where the picture is foreign to the model, no answer (`foldedAnswer`). */
function verdict(view) {
  return el(
    "section.ac-verdict",
    { "aria-label": "question and answers" },
    el("div.ac-head", {}, el("p.ac-question", {}, view.question), view.foreign ? null : headline(view)),
    warningsOf(view),
    view.foreign ? null : answers(view),
  );
}

/** The answer of a model that wasn't taught on such pictures, folded away. */
const foldedAnswer = (view) =>
  el("details.ac-fold", {}, el("summary", {}, "Show the bundled model's answer"), headline(view), answers(view));

function answers(view) {
  const coarse = coarseOf(view);
  const full = fullOf(view);
  const longest = Math.max(view.ms.total, full ? full.ms.total : 0);
  const row = { total: Math.max(view.total, view.read), longest };
  const kept = [view.magnified ? [view.read, "kept", "read, magnified"] : [view.kept, "kept", "kept"]];
  if (coarse > 0) kept.push([coarse, "coarse", "of the coarse view"]);
  const title = view.stock
    ? `From all ${plural(view.total, "token")}`
    : `From ${plural(view.read, "token")}`;
  const isLong = row.total >= 10_000; // its numbers take more room, in both rows
  return el(
    "div.ac-answers",
    { style: isLong ? { "--number": "126px" } : {} },
    costRow({ ...row, title, answer: view.answer, isTrue: view.is_true, tokens: kept, ms: view.ms, kind: "ours" }),
    full
      ? costRow({
          ...row,
          title: `From all ${count(view.total)}`,
          answer: full.text,
          isTrue: view.full_is_true,
          tokens: [[view.total, "all", "read"]],
          ms: full.ms,
          kind: "full",
        })
      : null,
    el("div.ac-times", {}, stageLegend(view), timing(view)),
    remarksOf(view),
  );
}

/** The answers in a sentence, for those who hear the page. */
function spokenVerdict(view) {
  const full = fullOf(view);
  const other = full && (view.agree ? "From all tokens the same" : `From all tokens: ${full.text || "none"}`);
  const parts = [`Answer from ${plural(view.read, "token")}: ${view.answer || "none"}`, other, view.note];
  return (view.foreign ? parts.reverse() : parts).filter(Boolean).join(". ");
}
