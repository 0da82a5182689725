// Turns specs of evidence into boxes in CSS px of the viewport; of each spec either its boxes or what is wrong with it.
//   text             the block of text that reads so, or else the only place where it stands; one box a line
//   text@@2          the second place where it stands
//   ~selector        what is printed in the only element that matches, or its box where nothing is
//   box:selector     the box of the only element that matches
//   x:row||column    the cells of those texts (each may end in @@2) and the cell where they cross
specs => {
  const CELLS = "td,th,.cell";
  const least = 0.5;
  const printed = r => r.width >= least && r.height >= least;

  const around = rects => {
    const kept = [...rects].filter(printed);
    if (!kept.length) return null;
    return [
      Math.min(...kept.map(r => r.left)), Math.min(...kept.map(r => r.top)),
      Math.max(...kept.map(r => r.right)), Math.max(...kept.map(r => r.bottom)),
    ];
  };

  const textNodes = root => {
    const nodes = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) nodes.push(walker.currentNode);
    return nodes;
  };

  const rectsOf = (node, start, end) => {
    const range = document.createRange();
    range.setStart(node, start);
    range.setEnd(node, end);
    return [...range.getClientRects()];
  };

  const blockOf = node => {
    let element = node.parentElement;
    if (element.closest("svg")) return element.closest("text");
    while (element && getComputedStyle(element).display === "inline") element = element.parentElement;
    return element;
  };

  // Runs of text of one block, white space as one space, and the node and offset of every character.
  const runs = [];
  let last = null;
  for (const node of textNodes(document.body)) {
    if (node.parentElement.closest("style,script")) continue;
    const block = blockOf(node);
    if (block !== last) runs.push({text: "", places: []});
    last = block;
    const run = runs.at(-1);
    for (let i = 0; i < node.data.length; i++) {
      const letter = /\s/.test(node.data[i]) ? " " : node.data[i];
      if (letter === " " && (run.text === "" || run.text.endsWith(" "))) continue;
      run.text += letter;
      run.places.push([node, i]);
    }
  }
  for (const run of runs) {
    run.text = run.text.trimEnd();
    run.places.length = run.text.length;
  }

  // The boxes of a part of a run: one a line, or one around a whole run.
  const partOf = (run, start, end) => {
    let rects = [];
    for (let i = start; i < end;) {
      const node = run.places[i][0];
      let j = i;
      while (j < end && run.places[j][0] === node) j++;
      rects.push(...rectsOf(node, run.places[i][1], run.places[j - 1][1] + 1));
      i = j;
    }
    const whole = around(rects);
    if (!whole || (start === 0 && end === run.text.length)) return [whole];
    const lines = [];
    for (const r of rects.filter(r => r.width >= least).sort((a, b) => a.top - b.top)) {
      const line = lines.find(l => Math.min(l[3], r.bottom) - Math.max(l[1], r.top) > 0.5 * r.height);
      if (!line) lines.push([r.left, r.top, r.right, r.bottom]);
      else {
        line[0] = Math.min(line[0], r.left);
        line[1] = Math.min(line[1], r.top);
        line[2] = Math.max(line[2], r.right);
        line[3] = Math.max(line[3], r.bottom);
      }
    }
    return lines.length > 1 ? lines : [whole];
  };

  const printOf = element => {
    const rects = textNodes(element).filter(node => node.data.trim()).flatMap(node => {
      const start = node.data.length - node.data.trimStart().length;
      return rectsOf(node, start, node.data.trimEnd().length);
    });
    return around(rects) ?? around([element.getBoundingClientRect()]);
  };

  const only = selector => {
    const matches = document.querySelectorAll(selector);
    if (matches.length !== 1) throw new Error(`${selector} matches ${matches.length} elements`);
    return matches[0];
  };

  // A text, and which of its places is meant, from 0; null: there is but one.
  const ranked = spec => {
    const match = spec.match(/^(.*)@@(\d+)$/);
    return match ? [match[1], match[2] - 1] : [spec, null];
  };

  const cellOf = spec => {
    const [text, rank] = ranked(spec);
    const normal = element => element.textContent.replace(/\s+/g, " ").trim();
    const matches = [...document.querySelectorAll(CELLS)].filter(element => normal(element) === text);
    if (rank === null ? matches.length !== 1 : !matches[rank]) throw new Error(`${matches.length} cells read ${spec}`);
    return matches[rank ?? 0];
  };

  const crossingOf = (row, column) => {
    const r = row.getBoundingClientRect(), c = column.getBoundingClientRect();
    const x = (c.left + c.right) / 2, y = (r.top + r.bottom) / 2;
    const matches = [...document.querySelectorAll(CELLS)].filter(element => {
      const box = element.getBoundingClientRect();
      return box.left <= x && x < box.right && box.top <= y && y < box.bottom;
    });
    if (matches.length !== 1) throw new Error(`${matches.length} cells cross`);
    return matches[0];
  };

  const boxesOf = spec => {
    if (spec.startsWith("box:")) return [around([only(spec.slice(4)).getBoundingClientRect()])];
    if (spec.startsWith("~")) return [printOf(only(spec.slice(1)))];
    if (spec.startsWith("x:")) {
      const [row, column] = spec.slice(2).split("||").map(cellOf);
      return [row, column, crossingOf(row, column)].map(printOf);
    }
    const [text, rank] = ranked(spec);
    const places = [];
    for (const run of runs)
      for (let i = run.text.indexOf(text); i >= 0; i = run.text.indexOf(text, i + 1)) places.push([run, i]);
    const whole = places.filter(([run]) => run.text === text);
    const place = rank !== null ? places[rank] : whole.length === 1 ? whole[0] : places.length === 1 ? places[0] : null;
    if (!place) throw new Error(`it stands in ${places.length} places`);
    return partOf(place[0], place[1], place[1] + text.length);
  };

  return specs.map(spec => {
    try {
      const boxes = boxesOf(spec);
      return boxes.includes(null) ? {error: "nothing of it is drawn"} : {boxes};
    } catch (error) {
      return {error: error.message};
    }
  });
}
