// Small line charts in inline SVG. Every number drawn is also in a title or in text beside the chart.

const CHART = { width: 420, height: 196, left: 44, right: 12, top: 12, bottom: 40 };

const linear = (from, to, start, end) => {
  const scale = (end - start) / (to - from || 1);
  return (value) => start + (value - from) * scale;
};

/** Three to six round numbers that span a range. */
function ticksOf(low, high) {
  const raw = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

/**
 * A chart of lines over one axis.
 *   x: {label, ticks: [[value, text]], scale?: "log", range: [low, high]}; y: {label, range: [low, high]}
 *   lines: [{name, kind, points: [[x, y]], dots?: [{kind, title, onclick}]}]
 *   bands: [{name, kind, points: [[x, low, high]]}]; marks: [{x, text, kind}]
 */
function lineChart({ label, x, y, lines, bands = [], marks = [] }) {
  const { width, height, left, right, top, bottom } = CHART;
  const warp = x.scale === "log" ? Math.log : (value) => value;
  const across = linear(warp(x.range[0]), warp(x.range[1]), left, width - right);
  const atX = (value) => across(warp(value));
  const atY = linear(y.range[0], y.range[1], height - bottom, top);
  const spot = ([px, py]) => `${atX(px).toFixed(1)} ${atY(py).toFixed(1)}`;
  const pathOf = (points) => `M${points.map(spot).join("L")}`;

  const yAxis = ticksOf(...y.range).map((tick) => [
    svg("line.ac-rule", { x1: left, x2: width - right, y1: atY(tick), y2: atY(tick) }),
    svg("text", { x: left - 7, y: atY(tick) + 4, "text-anchor": "end" }, String(tick).replace("-", "−")),
  ]);
  const xAxis = x.ticks.map(
    ([tick, text]) => svg("text", { x: atX(tick), y: height - bottom + 16, "text-anchor": "middle" }, text),
  );
  const markLines = marks.map(({ x: at, text, kind }) => [
    svg(
      `line.ac-marker.ac-line-${kind}`,
      { x1: atX(at), x2: atX(at), y1: top, y2: height - bottom },
      svg("title", {}, text),
    ),
  ]);
  const bandPaths = bands.map(({ name, kind, points }) => {
    const lower = points.map(([px, low]) => [px, low]).reverse();
    const upper = points.map(([px, , high]) => [px, high]);
    return svg(
      `path.ac-band.ac-line-${kind}`,
      { d: `${pathOf([...upper, ...lower])}Z` },
      svg("title", {}, name),
    );
  });
  const drawn = lines.map(({ name, kind, points, dots = [] }) => [
    svg(`path.ac-line.ac-line-${kind}`, { d: pathOf(points) }, svg("title", {}, name)),
    dots.map(({ kind: dotKind, title, onclick = null }, i) => {
      const [px, py] = points[i];
      const place = { cx: atX(px).toFixed(1), cy: atY(py).toFixed(1), r: 4 };
      const dot = svg(`circle.ac-point.ac-point-${dotKind}`, place, svg("title", {}, title));
      if (onclick) dot.addEventListener("click", onclick);
      return dot;
    }),
  ]);
  const names = svg(
    "text",
    { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" },
    x.label,
  );
  const keys = [...lines, ...bands.map((band) => ({ ...band, isBand: true }))]
    .filter(({ name }) => name)
    .map(
      ({ name, kind, isBand = false }) => el(
        "li",
        {},
        el(`i.ac-swatch.ac-swatch-${isBand ? "band" : "line"}.ac-line-${kind}`),
        name,
      ),
    );
  const markKeys = marks.map(
    ({ text, kind }) => el("li", {}, el(`i.ac-swatch.ac-swatch-marker.ac-line-${kind}`), text),
  );
  const box = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return el(
    "figure.ac-chart",
    {},
    el("figcaption.ac-quiet", {}, y.label),
    svg("svg", box, yAxis.flat(), xAxis, names, bandPaths, markLines.flat(), drawn.flat(2)),
    el("ul.ac-key", {}, keys, markKeys),
  );
}

/** Low and high of numbers with a little room; a flat set gets some height. */
function rangeOf(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = 0.06 * (high - low || 1);
  return [low - room, high + room];
}

/** Powers of four from 1, and the largest number. */
function countTicks(most) {
  const ticks = [];
  for (let n = 1; n < most; n *= 4) ticks.push(n);
  if (most / ticks[ticks.length - 1] < 2) ticks.pop();
  return [...ticks, most].map((n) => [n, count(n)]);
}
