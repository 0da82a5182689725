// Several traces on one page: a list to choose from, one of them whole, any other beside it. The address of
// the page names the trace and the cell ("#2,12,7"), so that a link leads back to them.

function album(element, views) {
  const list = el("nav.arrcoc.ac-album", { "aria-label": "traces" });
  const [main, beside, trend] = [el("div"), el("div"), el("div")];
  let current = 0;
  const buttons = views.map((view, i) =>
    el(
      "button.ac-album-entry",
      { type: "button", onclick: () => open(i) },
      el("span", {}, view.question),
      el("span.ac-quiet", {}, `${view.answer} · ${count(view.kept)} of ${count(view.total)}`),
      view.agree === false
        ? el("span.ac-badge.ac-differ", {}, icon(ICONS.differ, ""), "Different answer")
        : null,
    ),
  );
  const others = choice(
    "compare with",
    [["", [["", "Compare with …"], ...views.map((view, i) => [String(i), `${i + 1}. ${view.question}`])]]],
    (other) => {
      beside.replaceChildren();
      const labels = [`${current + 1}`, `${Number(other) + 1}`];
      if (other !== "") pair(beside, views[current], views[Number(other)], { labels });
    },
  );
  const open = (i, cell = null) => {
    current = i;
    others.value = "";
    beside.replaceChildren();
    buttons.forEach((button, n) => button.setAttribute("aria-current", n === i));
    const [, columns] = views[i].grid;
    const remember = ({ row, column }) => location.replace(`#${i + 1},${row + 1},${column + 1}`);
    const chosen = cell && cell[0] * columns + cell[1];
    mount(main, views[i], { detail: "full", onselect: remember, cell: chosen });
  };
  list.append(...(views.length > 1 ? [...buttons, others] : []));
  element.replaceChildren(list, main, beside, trend);
  if (views.length > 1) history(trend, views);
  const [named, row, column] = location.hash.slice(1).split(",").map(Number);
  const isNamed = views[named - 1] !== undefined;
  open(isNamed ? named - 1 : 0, isNamed && row >= 1 && column >= 1 ? [row - 1, column - 1] : null);
}
