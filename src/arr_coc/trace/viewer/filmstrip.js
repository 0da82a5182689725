// The filmstrip: a small picture of every step with its heat and its kept cells, and below it how much of the
// budget each step got, over time. One slider moves through both, by hand and by keys.

const THUMB = 168; // px of the longer side of a small picture
const AHEAD = "600px"; // how far out of sight small pictures are painted already
const CURVE = 56; // px of the curve's height
const TICKS = 6;

/** Small pictures in a row that scrolls, each painted when it comes into sight. `store` has {step, layer}. */
function thumbnails(clip, store, go) {
  const { width, height } = clip.view;
  const scale = THUMB / Math.max(width, height);
  const size = [width, height].map((side) => Math.max(8, Math.round(scale * side * devicePixelRatio)));
  const paintings = new Map();
  const frames = clip.steps.map((record, step) => {
    const [canvas, context] = surface(...size);
    const { rows, columns } = record;
    const box = { viewBox: `0 0 ${columns} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    const outline = svg("path.ac-outline", { d: outlineOf(record.view.keep, record) });
    const small = record.scaled(...size);
    let picture = null;
    paintings.set(canvas, async () => {
      picture ??= loadPicture(small.view);
      paint(context, await picture, small, { ...store.state, opacity: 1 }, small.view.keep);
    });
    const label = el("span.ac-frame-time", {}, clip.when(step));
    const kept = el("span.ac-frame-kept", {}, clip.budgets[step] > 0 ? count(clip.budgets[step]) : "–");
    return el(
      `button.ac-film-frame${clip.isCut(step) ? ".ac-after-cut" : ""}${clip.budgets[step] > 0 ? "" : ".ac-unread"}`,
      { type: "button", tabindex: -1, "aria-label": clip.about(step), onclick: () => go(step) },
      el("span.ac-film-picture", { style: { "aspect-ratio": `${width} / ${height}` } }, canvas, svg("svg", box, outline)),
      el("span.ac-frame-facts", {}, label, kept),
    );
  });
  const row = el("div.ac-film", { role: "group", "aria-label": "frames, with the number of cells kept of each" }, frames);
  const inSight = new Set();
  const paintSeen = (entries) => {
    for (const { target, isIntersecting } of entries) {
      const canvas = target.querySelector("canvas");
      if (isIntersecting) {
        inSight.add(canvas);
        paintings.get(canvas)();
      } else inSight.delete(canvas);
    }
  };
  const watcher = new IntersectionObserver(paintSeen, { rootMargin: AHEAD, scrollMargin: AHEAD });
  frames.forEach((frame) => watcher.observe(frame));
  store.on(["layer", "minus"], () => inSight.forEach((canvas) => paintings.get(canvas)()));
  store.on(["step"], ({ step }) => {
    frames.forEach((frame, i) => (i === step ? frame.setAttribute("aria-current", "true") : frame.removeAttribute("aria-current")));
    requestAnimationFrame(() => {
      const { offsetLeft, offsetWidth } = frames[step]; // within the row, which is their offset parent
      row.scrollTo({ left: offsetLeft + offsetWidth / 2 - row.clientWidth / 2 });
    });
  });
  return row;
}

/** The cells kept of each step as a line over time, with the cuts; a click goes to the step there. */
function budgetCurve(clip, store, go) {
  const last = Math.max(1, clip.steps.length - 1);
  const most = Math.max(...clip.budgets);
  const x = (step) => (100 * step) / last;
  const y = (kept) => CURVE - 2 - ((CURVE - 10) * kept) / most;
  const points = clip.budgets.map((kept, step) => `${x(step).toFixed(3)} ${y(kept).toFixed(2)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : `M0 ${y(most)}H100`;
  const end = points.length > 1 ? x(last) : 100;
  const cuts = clip.steps.map((_, step) => step).filter((step) => clip.isCut(step));
  const marks = cuts.map((step) =>
    svg("line.ac-cut", { x1: x(step), x2: x(step), y1: 0, y2: CURVE }, svg("title", {}, `cut at ${clip.when(step)}`)),
  );
  const now = svg("line.ac-now", { y1: 0, y2: CURVE });
  const box = { viewBox: `0 0 100 ${CURVE}`, preserveAspectRatio: "none", role: "img" };
  const scenes = cuts.length > 0 ? `, cuts at ${cuts.map((step) => clip.when(step)).join(", ")}` : "";
  const chart = svg(
    "svg.ac-curve",
    { ...box, "aria-label": `cells kept of each step, at most ${count(most)}${scenes}` },
    svg("path.ac-curve-area", { d: `${line}L${end} ${CURVE}L0 ${CURVE}Z` }),
    svg("path.ac-curve-line", { d: line }),
    marks,
    now,
  );
  chart.addEventListener("click", (event) => {
    const bounds = chart.getBoundingClientRect();
    go(Math.round(((event.clientX - bounds.left) / bounds.width) * last));
  });
  const dot = el("i.ac-curve-dot", { "aria-hidden": "true" });
  store.on(["step"], ({ step }) => {
    now.setAttribute("x1", x(step));
    now.setAttribute("x2", x(step));
    dot.style.setProperty("left", `${x(step)}%`);
    dot.style.setProperty("top", `${y(clip.budgets[step])}px`);
  });
  return el("div.ac-curve-frame", {}, chart, dot);
}

/** The times below the slider. */
function timeTicks(clip) {
  const last = clip.steps.length - 1;
  const parts = Math.min(TICKS - 1, last);
  const steps = Array.from({ length: parts + 1 }, (_, i) => Math.round((i * last) / Math.max(1, parts)));
  const marks = steps.map((step) =>
    el("span", { style: { left: `${(100 * step) / Math.max(1, last)}%` } }, clip.when(step)),
  );
  return el("div.ac-times-below", { "aria-hidden": "true" }, marks);
}

/** The filmstrip of a clip; `store` has {step, layer}. */
function filmstrip(clip, store) {
  const last = clip.steps.length - 1;
  const go = (step) => store.set({ step: Math.min(last, Math.max(0, step)) });
  const slider = el("input.ac-scrub", {
    type: "range",
    min: 0,
    max: last,
    "aria-label": "frame of the clip",
    oninput: (event) => go(Number(event.target.value)),
  });
  const most = Math.max(...clip.budgets);
  const cuts = clip.steps.filter(({ step }) => clip.isCut(step)).length;
  const keys = [
    el("li", {}, el("i.ac-swatch.ac-swatch-line.ac-curve-key"), `cells kept of each step, at most ${count(most)}`),
    cuts > 0 ? el("li", {}, el("i.ac-swatch.ac-swatch-cut"), plural(cuts, "cut")) : null,
  ];
  store.on(["step"], ({ step }) => {
    slider.value = step;
    slider.style.setProperty("--fill", `${(100 * step) / Math.max(1, last)}%`);
    slider.setAttribute("aria-valuetext", clip.about(step));
  });
  return el(
    "section.ac-panel.ac-filmstrip",
    { "aria-label": "filmstrip" },
    thumbnails(clip, store, go),
    el("div.ac-scrub-track", {}, budgetCurve(clip, store, go), slider, timeTicks(clip)),
    el("ul.ac-key", {}, keys),
  );
}
