// What a view says of its cells: maps, ranks, kept sets and the reason for each cell. Numbers only, no page.

const FORMAT = "arr-coc view 2";
const SCORES = ["balanced", "information", "perspectival", "participatory"];
/** The words for the three maps, whose names in files are older. */
const SCORER_WORDS = { perspectival: "saliency", participatory: "coupling" };
const scorerWord = (name) => SCORER_WORDS[name] ?? name;
const KIND = { relevant: "0", explored: "1", void: "2", gestalt: "3", all: "4" };

/** A view of one image as a flat record of its only strip, which its canvas draws; null of clips or of several. */
function imageOf(view) {
  if (!view?.strips) return null;
  const [strip, ...others] = view.strips;
  if (others.length > 0 || strip.spans.length > 0) return null;
  return { ...strip, ...view, grid: strip.grid.slice(1), image: strip.images[0] };
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

class AllocationRecord {
  constructor(view) {
    this.view = view;
    [this.rows, this.columns] = view.grid;
    this.cells = this.rows * this.columns;
    this.palette = bytesOf(view.palette);
    this.layers = new Map(view.layers.map((layer) => [layer.id, layer]));
    this.reasons = new Map(view.keep.map((cell, i) => [cell, String(view.reasons[i])]));
    this.known = new Map();
    this.probes = soundProbes(view, this.cells);
    this.heat = { key: null, canvas: null }; // the last one painted
  }

  /** How many cells are ranked together. */
  get ranked() {
    return this.cells;
  }

  /** The values of a layer, one per cell: of the view, "word:i", "spot:i", "all" (1 everywhere) or "kept" (0 or 1). */
  values(id) {
    if (!this.known.has(id)) this.known.set(id, this.decode(id));
    return this.known.get(id);
  }

  decode(id) {
    if (id === "all") return new Float32Array(this.cells).fill(1);
    if (id === "kept") return maskOf(this.view.keep, this.cells);
    const [kind, number] = id.split(":");
    const lists = { word: this.view.words, spot: this.view.guidance?.spots };
    const source = lists[kind] ? lists[kind][Number(number)] : this.layers.get(id);
    return new Float32Array(bytesOf(source.data).buffer);
  }

  /** The highest value of a layer, to which its colours reach; 1 of a layer that is 0 everywhere. */
  highest(id) {
    return this.values(id).reduce((most, value) => Math.max(most, value), 0) || 1;
  }

  difference([a, b]) {
    const from = this.values(a);
    const take = this.values(b);
    return from.map((value, i) => value - take[i]);
  }

  name(id) {
    if (id === "all") return "every cell";
    if (id === "kept") return "kept";
    if (id.startsWith("word:")) return `“${this.view.words[Number(id.slice(5))].text}”`;
    if (id.startsWith("spot:")) return `“${this.view.guidance.spots[Number(id.slice(5))].label}”`;
    return this.layers.get(id).name;
  }

  /** What a layer's values mean, at length where its name is a word of the field. */
  about(id) {
    const { name, about } = this.layers.get(id);
    return TERMS[name] ?? about;
  }

  /** All cells, highest value first; ties go to the earlier cell, as in the allocator. */
  ranking(id) {
    const key = `ranking ${id}`;
    if (!this.known.has(key)) {
      const values = this.values(id);
      const cells = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b);
      this.known.set(key, cells);
    }
    return this.known.get(key);
  }

  /** The rank of a cell in a layer, from 1; where relevance kept it, its place in the allocator's order. */
  rank(id, cell) {
    const isRelevant = id === "balanced" && this.reasons.get(cell) === KIND.relevant;
    return 1 + (isRelevant ? this.view.order : this.ranking(id)).indexOf(cell);
  }

  place(cell) {
    return { row: Math.floor(cell / this.columns), column: cell % this.columns };
  }

  /** The pixels of a cell in the picture. */
  box(cell) {
    const { row, column } = this.place(cell);
    const w = this.view.width / this.columns;
    const h = this.view.height / this.rows;
    return { x: column * w, y: row * h, w, h };
  }

  /** Why a cell lived or died, in words. */
  reason(cell) {
    const { view } = this;
    const rank = `rank ${count(this.rank("balanced", cell))}`;
    const kind = this.reasons.get(cell);
    const texts = {
      [KIND.relevant]: `${rank} of ${count(view.total)}, within the ${count(view.kept)} kept`,
      [KIND.explored]: `${rank} of ${count(view.total)}, kept for coverage`,
      [KIND.void]: `one of an even grid of ${count(view.kept)}: nothing in the image to prefer`,
      [KIND.gestalt]: "part of the coarse view, which is always kept",
      [KIND.all]: `all ${count(view.total)} were kept: nothing was chosen`,
    };
    return kind === undefined ? this.loss(cell, rank) : (texts[kind] ?? view.reason_names[kind]);
  }

  loss(cell, rank) {
    const relevance = this.values("balanced");
    const chosen = this.view.order.filter((other) => this.reasons.get(other) === KIND.relevant);
    if (chosen.length === 0) return `${rank}: not on the even grid of ${count(this.view.kept)} that was kept`;
    const cut = relevance[chosen[chosen.length - 1]];
    return (
      `${rank}: the last one kept was rank ${count(chosen.length)}, ` +
      `its relevance ${fixed(relevance[cell])}, the cut ${fixed(cut)}`
    );
  }
}

function maskOf(cells, total) {
  const mask = new Float32Array(total);
  for (const cell of cells) mask[cell] = 1;
  return mask;
}

/** Two kept sets: the cells of one, of the other, of both, and their intersection over union. */
function compareSets(a, b) {
  const inA = new Set(a);
  const inB = new Set(b);
  const both = a.filter((cell) => inB.has(cell));
  const onlyA = a.filter((cell) => !inB.has(cell));
  const onlyB = b.filter((cell) => !inA.has(cell));
  return { both, onlyA, onlyB, iou: both.length / (both.length + onlyA.length + onlyB.length) };
}
