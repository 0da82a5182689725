// Draws what docs/try.json says of a picture and a question: cells that aren't kept are faded, the first fact is outlined.
"use strict";
(() => {
  const record = JSON.parse(document.getElementById("try-record").textContent);
  const root = document.getElementById("try");
  const make = (tag, facts = {}, ...inside) => {
    const element = document.createElementNS(/^(svg|path|rect)$/.test(tag) ? "http://www.w3.org/2000/svg" : root.namespaceURI, tag);
    for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  };
  // Radio buttons: Tab reaches a group, arrow keys move within it.
  const group = (title, name, choices, pick) => {
    const made = make("fieldset", { class: `try-${name}` }, make("legend", {}, title));
    choices.forEach((inside, number) => {
      const input = make("input", { type: "radio", name: `try-${name}`, value: number });
      input.checked = number === 0;
      input.addEventListener("change", () => pick(number));
      made.append(make("label", {}, input, ...inside));
    });
    return made;
  };
  const picture = make("img", { decoding: "async" });
  const faded = make("path", { class: "try-faded" });
  const fact = make("rect", { class: "try-fact", rx: 6 });
  const overlay = make("svg", { "aria-hidden": "true" }, faded, fact);
  const told = make("p", { "aria-live": "polite" });
  const questions = make("div");

  const show = (page, one) => {
    const [rows, columns] = page.grid, [width, height] = page.size;
    const [wide, high] = [width / columns, height / rows], kept = new Set(one.kept);
    let path = "";
    for (let cell = 0; cell < rows * columns; cell++)
      if (!kept.has(cell)) path += `M${(cell % columns) * wide} ${Math.floor(cell / columns) * high}h${wide}v${high}h${-wide}z`;
    faded.setAttribute("d", path);
    const [x0, y0, x1, y1] = one.fact;
    fact.style.display = one.fact.length ? "" : "none";
    if (one.fact.length)
      for (const [name, value] of Object.entries({ x: x0 - 6, y: y0 - 6, width: x1 - x0 + 12, height: y1 - y0 + 12 }))
        fact.setAttribute(name, value);
    const sure = `The guide is ${Math.round(100 * one.sure)} % sure that this picture holds what is asked for.`;
    told.replaceChildren(
      make("strong", {}, one.answer ? `Answer: ${one.answer}. ` : "The picture doesn't say. "),
      `${one.kept.length} of ${(rows * columns).toLocaleString("en")} cells are read. ${sure}`,
    );
  };
  const open = (page) => {
    picture.src = `../pictures/${page.name}.png`;
    picture.alt = page.alt;
    [picture.width, picture.height] = page.size;
    overlay.setAttribute("viewBox", `0 0 ${page.size.join(" ")}`);
    const texts = page.questions.map((one) => [one.question]);
    questions.replaceChildren(group("Question", "question", texts, (number) => show(page, page.questions[number])));
    show(page, page.questions[0]);
  };
  const pages = record.map((page) => [make("img", { src: `../pictures/${page.name}.png`, alt: page.alt, title: page.alt })]);
  root.replaceChildren(
    group("Picture", "picture", pages, (number) => open(record[number])),
    questions,
    told,
    make("div", { class: "try-stage" }, picture, overlay),
  );
  open(record[0]);
})();
