// An answer about clips: the verdict, the filmstrip, and the frame that is chosen in it, drawn as an image is.

const STAYS = ["layer", "minus", "opacity", "grid"]; // what a frame hands on to the next one

/** One trace of clips, or of images and clips; the arguments are those of `mount`. */
function drawClips(host, shown, former, { isFull, isAlone, onselect, step = null }) {
  const clips = shown.strips.map((strip) => new ClipRecord(shown, strip));
  const name = JSON.stringify([shown.question, shown.answer, shown.kept, shown.ms]);
  const isSame = former.name === name; // the same trace, sent again
  const which = isSame ? former.which : Math.max(0, clips.findIndex((clip) => clip.isClip));
  const layer = isAlone ? "kept" : "balanced";
  const kept = Object.fromEntries(STAYS.filter((name) => name in former).map((name) => [name, former[name]]));
  const known = ["kept", "image", "all", "difference", ...SCORES];
  if (!known.includes(kept.layer)) kept.layer = layer;
  const minus = kept.minus?.every((id) => known.includes(id)) ? kept.minus : ["all", "kept"];
  const state = { opacity: 1, grid: false, ...kept, minus, name, which, step: 0, cell: null };
  const store = makeStore(state);
  const body = el("div.ac-clip-body");
  const names = clips.map((clip, i) => [String(i), `${clip.isClip ? "Clip" : "Image"} ${i + 1}`]);
  const picker = segmented("image or clip", names, (i) => choose(Number(i)));
  const choose = (i) => {
    store.set({ which: i });
    picker.choose(String(i));
    const first = isSame && i === former.which ? former.step : step;
    body.replaceChildren(...clipBody(clips[i], store, { isFull, isAlone, onselect, first }));
  };
  host.classList.toggle("ac-simple", !isFull);
  const folded = isAlone && shown.foreign ? foldedAnswer(shown) : "";
  host.replaceChildren(isAlone ? verdict(shown) : "", clips.length > 1 ? picker : "", body, folded);
  choose(which);
  return store;
}

/** The filmstrip and the chosen frame of one clip; of an image its canvas alone. */
function clipBody(clip, outer, { isFull, isAlone, onselect, first }) {
  const load = stepPictures(clip);
  const best = clip.budgets.indexOf(Math.max(...clip.budgets));
  const begin = first !== null && first < clip.steps.length ? first : best;
  const store = makeStore({ ...outer.state, step: begin });
  const place = el("div.ac-columns");
  let turn = 0;
  store.on(["step"], async ({ step }) => {
    const mine = ++turn;
    outer.set({ step });
    const picture = await load(step);
    if (mine !== turn) return; // another frame was chosen while this one was decoded
    place.replaceChildren(...framePanels(clip, step, picture, store, outer, { isFull, isAlone, onselect }));
  });
  store.on(STAYS, (state) => outer.set(Object.fromEntries(STAYS.map((name) => [name, state[name]]))));
  const { guidance } = clip.strip;
  const below = isFull ? el("div.ac-panels", {}, guidance ? clipGuidance(guidance) : "", weights(clip.strip)) : "";
  return [clip.isClip ? filmstrip(clip, store) : "", place, below];
}

/** The chosen frame with its layers, and in full the card of a cell. */
function framePanels(clip, step, picture, store, outer, { isFull, isAlone, onselect }) {
  const record = clip.steps[step];
  const initial = initialState(record, store.state, isAlone ? "kept" : "balanced");
  const own = makeStore({ ...initial, cell: isFull ? (initial.cell ?? record.view.order[0]) : null });
  own.on(STAYS, (state) => {
    const changed = STAYS.filter((name) => store.state[name] !== state[name]);
    if (changed.length > 0) store.set(Object.fromEntries(changed.map((name) => [name, state[name]])));
  });
  own.on(["cell"], ({ cell }) => Object.assign(store.state, { cell }));
  const tell = onselect && ((cell) => onselect({ ...cell, step }));
  const options = { onselect: tell, label: clip.isClip ? `Frame at ${clip.when(step)}` : "Image" };
  const canvas = canvasPanel(record, picture, own, isFull, options);
  if (clip.isClip) canvas.prepend(frameTitle(clip, step));
  return isFull ? [canvas, el("div.ac-side", {}, card(record, picture, own))] : [canvas];
}

function frameTitle(clip, step) {
  const [start, end] = clip.strip.spans[step];
  const [width, height] = clip.strip.side;
  const time = end > start ? `${start.toFixed(1)} to ${seconds(end)}` : seconds(start);
  return el(
    "p.ac-frame-title",
    { "aria-live": "polite" },
    el("strong.ac-title", {}, time),
    el("span.ac-quiet", {}, `step ${step + 1} of ${clip.steps.length}, read at ${width} × ${height} px`),
    clip.isCut(step) ? el("span.ac-badge", {}, "after a cut") : null,
  );
}

/** What the guide said of a clip, and which of the question's words it matched. */
function clipGuidance(guidance) {
  const rows = guidance.spots.map((spot) =>
    el(
      "li.ac-clip-word",
      {},
      el("span.ac-spot-word", {}, spot.label),
      bar([[spot.likeness, spot.matches ? "matched" : "unmatched"]]),
      el("span.ac-number", {}, spot.told),
    ),
  );
  const about = "the words it read, in the frame where it is surest";
  return panel("Words in the clip", about, assurance(guidance), el("ul.ac-spots", {}, rows));
}
