// The token canvas: the picture at the model's own size, its cells, and what lies over them.
//
// Law: the colours of a layer go from 0 to its highest value, of a clip that of all its steps, and the legend says how
// much that is; a difference goes from -1 to 1. Over a heat only the lines of the picture show, so that a cell keeps the colour of the legend.

const FADE = 0.78; // how far the ground covers a cell that isn't kept: its print is pale, not gone
const GROUNDS = [[233, 235, 239], [44, 46, 51]]; // of a light picture and of a dark one
const DARK = 100; // the mean brightness up to which a picture is dark
const LINES = [0.8, 0.9]; // lines of the picture over dark and over light cells
const BLUR = 16; // pixels; lines are what differs from its surroundings,
const HALO = 22; // by more than this, of 255
const BELOW = [86, 190, 255];
const ZERO = [16, 16, 20];
const ABOVE = [255, 178, 36];

function surface(width, height) {
  const canvas = el("canvas", { width, height });
  return [canvas, canvas.getContext("2d", { willReadFrequently: true })];
}

/** The picture of a view, decoded once: as it is, faded, and its lines [h * w] in 0..255. */
async function loadPicture(view) {
  const image = new Image();
  image.src = view.image;
  await image.decode();
  const { width, height } = view;
  const [bright, brightContext] = surface(width, height);
  brightContext.drawImage(image, 0, 0, width, height);
  const pixels = brightContext.getImageData(0, 0, width, height);
  const gray = grayOf(pixels.data);

  const [small, smallContext] = surface(Math.ceil(width / BLUR), Math.ceil(height / BLUR));
  smallContext.imageSmoothingQuality = "high";
  smallContext.drawImage(bright, 0, 0, small.width, small.height);
  const [smooth, smoothContext] = surface(width, height);
  smoothContext.drawImage(small, 0, 0, width, height);
  const around = grayOf(smoothContext.getImageData(0, 0, width, height).data);
  const lines = gray.map((value, i) => Math.max(0, Math.abs(value - around[i]) - HALO));

  const [faded, fadedContext] = surface(width, height);
  const ground = GROUNDS[Number(gray.reduce((sum, value) => sum + value, 0) <= DARK * gray.length)];
  pixels.data.forEach((value, i) => {
    if (i % 4 < 3) pixels.data[i] = value + FADE * (ground[i % 4] - value);
  });
  fadedContext.putImageData(pixels, 0, 0);
  return { source: view.image, width, height, bright, faded, lines };
}

const brightness = (r, g, b) => 0.299 * r + 0.587 * g + 0.114 * b;

function grayOf(data) {
  const gray = new Float32Array(data.length / 4);
  for (let i = 0; i < gray.length; i++) gray[i] = brightness(data[4 * i], data[4 * i + 1], data[4 * i + 2]);
  return gray;
}

function shade(palette, value) {
  const i = 3 * Math.min(255, Math.max(0, Math.floor(256 * value)));
  return [palette[i], palette[i + 1], palette[i + 2]];
}

function diverging(value) {
  const end = value < 0 ? BELOW : ABOVE;
  const share = Math.min(1, Math.abs(value));
  return ZERO.map((zero, i) => zero + share * (end[i] - zero));
}

/** A canvas of the cells' colours with the picture's lines on them. */
function heatOf(picture, record, values, colour) {
  const { width, height, lines } = picture;
  const [canvas, context] = surface(width, height);
  const pixels = context.createImageData(width, height);
  const colours = Array.from(values, colour);
  const gains = colours.map((colour) => (brightness(...colour) < 128 ? LINES[0] : -LINES[1]));
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor((y * record.rows) / height) * record.columns;
    for (let x = 0; x < width; x++, i++) {
      const cell = row + Math.floor((x * record.columns) / width);
      const line = gains[cell] * lines[i];
      for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = colours[cell][c] + line;
      pixels.data[4 * i + 3] = 255;
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** Paint a layer of a view at an opacity; `cells` are the kept ones of the layer "kept". */
function paint(context, picture, record, { layer, minus, opacity }, cells) {
  context.globalAlpha = 1;
  context.drawImage(picture.bright, 0, 0);
  context.globalAlpha = opacity;
  if (layer === "kept") {
    maskOf(cells, record.cells).forEach((isKept, cell) => {
      const { x, y, w, h } = record.box(cell);
      if (!isKept) context.drawImage(picture.faded, x, y, w, h, x, y, w, h);
    });
  } else if (layer !== "image") {
    const isDifference = layer === "difference";
    const key = isDifference ? minus.join(" - ") : layer;
    if (record.heat.key !== key) {
      const values = isDifference ? record.difference(minus) : record.values(layer);
      const most = isDifference ? 1 : record.highest(layer);
      const colour = isDifference ? diverging : (value) => shade(record.palette, value / most);
      record.heat = { key, canvas: heatOf(picture, record, values, colour) };
    }
    context.drawImage(record.heat.canvas, 0, 0);
  }
  context.globalAlpha = 1;
}

/** The border between cells of a set and the others, as an SVG path in units of cells. */
function outlineOf(cells, record) {
  const { rows, columns } = record;
  const mask = maskOf(cells, record.cells);
  const at = (y, x) => (y < 0 || x < 0 || y >= rows || x >= columns ? 0 : mask[y * columns + x]);
  let path = "";
  for (let y = 0; y <= rows; y++) {
    for (let x = 0; x <= columns; x++) {
      if (x < columns && at(y, x) !== at(y - 1, x)) path += `M${x} ${y}h1`;
      if (y < rows && at(y, x) !== at(y, x - 1)) path += `M${x} ${y}v1`;
    }
  }
  return path;
}

function gridOf({ rows, columns }) {
  const down = Array.from({ length: columns - 1 }, (_, i) => `M${i + 1} 0v${rows}`);
  const across = Array.from({ length: rows - 1 }, (_, i) => `M0 ${i + 1}h${columns}`);
  return down.concat(across).join("");
}

/**
 * The picture with its cells. Pointer and arrow keys move over the cells (`hover`); a click, Enter or space
 * chooses one (`cell`). `cellsOf(state)` are the kept ones; `outlinesOf(state)` are [kind, cells] to outline. Without it
 * the kept ones are on a heat, and where the picture shows the units that are likely meant.
 */
function stage(record, picture, store, options = {}) {
  const { label = "", onselect = null } = options;
  const cellsOf = options.cellsOf ?? ((state) => state.shown.cells);
  const outlinesOf = options.outlinesOf ?? ((state) => (state.layer === "kept" ? [] : [["kept", cellsOf(state)]]));
  const { width, height } = picture;
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d");
  const size = `${record.rows} rows and ${record.columns} columns of cells`;
  const rect = (kind) => svg(`rect.ac-${kind}`, { width: 1, height: 1, visibility: "hidden" });
  const [hovered, chosen] = [rect("hovered"), rect("chosen")];
  const grid = svg("path.ac-grid", { d: gridOf(record) });
  const outlines = svg("g");
  const truth = svg("g");
  const view = {
    viewBox: `0 0 ${record.columns} ${record.rows}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  };
  const element = el(
    "div.ac-stage",
    {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "image in cells",
      "aria-label": `${label || "Image"}: ${size}. Arrow keys move, Enter chooses a cell.`,
      style: { "aspect-ratio": `${width} / ${height}`, "--aspect": `${width / height}` },
    },
    canvas,
    svg("svg", view, grid, outlines, truth, chosen, hovered),
  );

  const cellAt = (event) => {
    const bounds = element.getBoundingClientRect();
    const inside = (at, size, n) => Math.min(n - 1, Math.max(0, Math.floor((at / size) * n)));
    const column = inside(event.clientX - bounds.left, bounds.width, record.columns);
    return inside(event.clientY - bounds.top, bounds.height, record.rows) * record.columns + column;
  };
  const choose = (cell) => {
    store.set({ cell, hover: cell });
    if (onselect) onselect({ index: cell, ...record.place(cell) });
  };
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  element.addEventListener("pointermove", (event) => store.set({ hover: cellAt(event) }));
  element.addEventListener("pointerleave", () => store.set({ hover: null }));
  element.addEventListener("blur", () => store.set({ hover: null }));
  element.addEventListener("click", (event) => choose(cellAt(event)));
  element.addEventListener("keydown", (event) => {
    const at = store.state.hover ?? store.state.cell ?? record.view.order[0];
    const { row, column } = record.place(at);
    if (event.key in move) {
      const y = Math.min(record.rows - 1, Math.max(0, row + move[event.key][0]));
      const x = Math.min(record.columns - 1, Math.max(0, column + move[event.key][1]));
      store.set({ hover: y * record.columns + x });
    } else if (event.key === "Enter" || event.key === " ") choose(at);
    else return;
    event.preventDefault();
  });

  store.on(["layer", "minus", "opacity", "shown"], (state) => {
    paint(context, picture, record, state, cellsOf(state));
    element.classList.toggle("ac-on-heat", state.layer !== "kept");
    const drawn = state.layer === "image" ? [] : outlinesOf(state);
    outlines.replaceChildren(
      ...drawn.map(([kind, cells]) => svg(`path.ac-outline.ac-of-${kind}`, { d: outlineOf(cells, record) })),
      ...(hasUnits(state) && !options.outlinesOf ? unitOutlines(record) : []),
    );
  });
  store.on(["shown"], (state) => truth.replaceChildren(...evidenceOutlines(record, cellsOf(state))));
  store.on(["grid"], (state) => grid.setAttribute("visibility", state.grid ? "visible" : "hidden"));
  const follow = (shape, cell) => {
    shape.setAttribute("visibility", cell === null ? "hidden" : "visible");
    if (cell === null) return;
    const { row, column } = record.place(cell);
    shape.setAttribute("x", column);
    shape.setAttribute("y", row);
  };
  store.on(["hover"], (state) => follow(hovered, state.hover));
  store.on(["cell"], (state) => follow(chosen, state.cell));
  return element;
}

/** A cell and its neighbours, enlarged. */
function cropOf(record, picture, cell, size = 132) {
  const { x, y, w, h } = record.box(cell);
  const [canvas, context] = surface(size, Math.round((size * h) / w));
  context.imageSmoothingEnabled = w * 3 > size;
  context.drawImage(picture.bright, x - w, y - h, 3 * w, 3 * h, 0, 0, canvas.width, canvas.height);
  const frame = svg(
    "svg",
    { viewBox: "0 0 3 3", preserveAspectRatio: "none" },
    svg("rect.ac-chosen", { x: 1, y: 1, width: 1, height: 1 }),
  );
  return el("div.ac-crop", { role: "img", "aria-label": "the cell and its neighbours" }, canvas, frame);
}
