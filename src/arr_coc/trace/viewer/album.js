// Several traces on one page: a list to choose from, one of them whole, any other beside it. The address of
// the page names the trace, the cell and of a clip the step ("#2,12,7,5"), so that a link leads back to them.

function album(element, views) {
  const list = el("nav.arrcoc.ac-album", { "aria-label": "traces" });
  const [main, beside, trend] = [el("div"), el("div"), el("div")];
  const stills = views.map((_, i) => i).filter((i) => imageOf(views[i])); // clips aren't compared
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
    [["", [["", "Compare with …"], ...stills.map((i) => [String(i), `${i + 1}. ${views[i].question}`])]]],
    (other) => {
      beside.replaceChildren();
      const labels = [`${current + 1}`, `${Number(other) + 1}`];
      if (other !== "") pair(beside, views[current], views[Number(other)], { labels });
    },
  );
  const open = (i, cell = null) => {
    current = i;
    others.value = "";
    others.hidden = !imageOf(views[i]);
    beside.replaceChildren();
    buttons.forEach((button, n) => button.setAttribute("aria-current", n === i));
    const remember = ({ row, column, step }) =>
      location.replace(`#${[i, row, column, ...(step === undefined ? [] : [step])].map((n) => n + 1)}`);
    const image = imageOf(views[i]);
    const chosen = cell && image ? cell[0] * image.grid[1] + cell[1] : null;
    mount(main, views[i], { detail: "full", onselect: remember, cell: chosen, step: cell?.[2] ?? null });
  };
  list.append(...(views.length > 1 ? [...buttons, others] : []));
  element.replaceChildren(list, main, beside, trend);
  if (views.length > 1) history(trend, views);
  const [named, row, column, step] = location.hash.slice(1).split(",").map(Number);
  const isNamed = views[named - 1] !== undefined;
  const place = [row - 1, column - 1, step >= 1 ? step - 1 : null];
  open(isNamed ? named - 1 : 0, isNamed && row >= 1 && column >= 1 ? place : null);
}
