// Steps of a clip: each drawn as a picture with its cells, its numbers those of the whole clip.

const DECODED = 24; // pictures of steps that are held at their whole size

const seconds = (s) => `${s.toFixed(1)} s`;

/** A clip's allocation; its steps lie under one another. `steps` are their records. */
class ClipRecord extends AllocationRecord {
  constructor(view, strip) {
    const [steps, rows, columns] = strip.grid;
    const shared = { palette: view.palette, reason_names: view.reason_names, words: [], evidence: [] };
    super({ ...shared, ...strip, grid: [steps * rows, columns], guidance: null });
    this.strip = strip;
    this.each = rows * columns;
    const lists = Array.from({ length: steps }, () => []);
    for (const cell of strip.order) lists[Math.floor(cell / this.each)].push(cell % this.each);
    this.budgets = lists.map((list) => list.length);
    this.steps = lists.map((order, step) => new StepRecord(this, step, order));
  }

  get isClip() {
    return this.strip.spans.length > 0;
  }

  /** When a step is, in words; "" of an image. */
  when(step) {
    return this.isClip ? seconds(this.strip.spans[step][0]) : "";
  }

  /** A step in a sentence. */
  about(step) {
    const kept = `${count(this.budgets[step])} of ${count(this.each)} cells kept`;
    return `step ${step + 1} of ${this.steps.length}, ${this.when(step)}, ${kept}${this.isCut(step) ? ", after a cut" : ""}`;
  }

  /** Whether a scene begins with a step; the first one is no cut. */
  isCut(step) {
    return step > 0 && this.strip.cuts.includes(step);
  }
}

/** One step, for the canvas and the card of a cell; ranks and reasons are those of the whole clip. */
class StepRecord extends AllocationRecord {
  constructor(clip, step, order, width = clip.view.width, height = clip.view.height) {
    const first = step * clip.each;
    const [, rows, columns] = clip.strip.grid;
    const cells = [...order].sort((a, b) => a - b);
    const facts = { grid: [rows, columns], width, height, image: clip.strip.images[step], order };
    const own = { keep: cells, reasons: cells.map((cell) => clip.reasons.get(first + cell)) };
    super({ ...clip.view, ...facts, ...own, kept: cells.length, total: clip.each });
    Object.assign(this, { clip, step, first });
    if (order.length === 0) this.view.order = [this.ranking("balanced")[0]]; // where the keys begin
  }

  decode(id) {
    if (!this.layers.has(id)) return super.decode(id);
    return this.clip.values(id).subarray(this.first, this.first + this.cells);
  }

  /** That of the whole clip, so that steps can be compared. */
  highest(id) {
    return this.layers.has(id) ? this.clip.highest(id) : super.highest(id);
  }

  get ranked() {
    return this.clip.cells;
  }

  rank(id, cell) {
    return this.clip.rank(id, this.first + cell);
  }

  reason(cell) {
    return this.clip.reason(this.first + cell);
  }

  /** The same at another size of the picture. */
  scaled(width, height) {
    return new StepRecord(this.clip, this.step, this.view.keep, width, height);
  }
}

/** The pictures of steps, decoded when they are needed; the last few are held. */
function stepPictures(clip) {
  const held = new Map();
  return (step) => {
    const picture = held.get(step) ?? loadPicture(clip.steps[step].view);
    held.delete(step);
    held.set(step, picture);
    if (held.size > DECODED) held.delete(held.keys().next().value);
    return picture;
  };
}
