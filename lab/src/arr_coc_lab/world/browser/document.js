// What of a document stands wholly in the viewport: words, headings with their sections, terms, tables. CSS px.
// Returns {words, text, titles, sections, terms, crossings, values}; lines are [left, top, right, bottom]. Of an interface
// also {pairs, prices, cards, controls, buttons, lists}: there the names of icons and print that is not Latin are no text.
ofInterface => {
  const W = innerWidth, H = innerHeight, range = document.createRange();
  const HEADING = "h1,h2,h3,h4,h5,h6", MARK = /^[\s¶#§]*$/;
  const FOREIGN = /[\u0370-\u1cff\u2e80-\ud7ff]/, ICON = "[class*=icon],[class*=material-symbols]";
  const clean = text => text.replace(/[¶]/g, " ").replace(/\s+/g, " ").trim();
  const count = text => text.split(" ").length;
  const inside = r => r.left >= 0 && r.top >= 0 && r.right <= W && r.bottom <= H;
  const near = r => r.bottom > 0 && r.top < H && r.right > 0 && r.left < W;

  // Nothing lies over a rectangle: sticky bars cover text, and scrolling boxes cut it.
  const free = (r, parent) => [0.1, 0.9].every(share => {
    const top = document.elementFromPoint(r.left + share * (r.right - r.left), (r.top + r.bottom) / 2);
    return top && parent.contains(top);
  });
  const visible = new Map();
  const printed = element => {
    if (!visible.has(element)) visible.set(element, element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}));
    return visible.get(element);
  };

  // Text nodes of the document in order; of an element a slice, since text is walked only once.
  const all = [], first = new Map(), spaced = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node; (node = walker.nextNode());) {
    if (node.nodeName === "BR" && all.length) spaced.add(all[all.length - 1]);
    if (node.nodeType !== Node.TEXT_NODE) continue;
    const parent = node.parentElement;
    if (/^\s+$/.test(node.data) && all.length) spaced.add(all[all.length - 1]);
    if (MARK.test(node.data) || ["STYLE", "SCRIPT", "NOSCRIPT", "OPTION", "TEXTAREA"].includes(parent.tagName)) continue;
    if (ofInterface && (FOREIGN.test(node.data) || (/^\s*[a-z_0-9]+\s*$/.test(node.data) && parent.closest(ICON)))) continue;
    for (let e = parent; e && !first.has(e); e = e.parentElement) first.set(e, all.length);
    all.push(node);
  }
  const nodes = element => {
    const out = [];
    if (first.has(element)) for (let i = first.get(element); i < all.length && element.contains(all[i]); i++) out.push(all[i]);
    return out;
  };

  // The lines of some text nodes, or null unless all of them are wholly in the picture.
  const lines = list => {
    const out = [];
    for (const node of list) {
      if (!printed(node.parentElement)) return null;
      range.selectNodeContents(node);
      for (const r of range.getClientRects()) {
        if (r.width < 1 || r.height < 1) continue;
        if (!inside(r) || !free(r, node.parentElement)) return null;
        const last = out[out.length - 1];
        const same = last && Math.min(last[3], r.bottom) - Math.max(last[1], r.top) > 0.5 * Math.min(r.height, last[3] - last[1]);
        if (same && r.left - last[2] < 2 * r.height && last[0] - r.right < 2 * r.height)
          out[out.length - 1] = [Math.min(last[0], r.left), Math.min(last[1], r.top), Math.max(last[2], r.right), Math.max(last[3], r.bottom)];
        else out.push([r.left, r.top, r.right, r.bottom]);
      }
    }
    return out.length ? out : null;
  };
  const piece = list => {
    const boxes = list.length ? lines(list) : null;
    return boxes && {text: clean(list.map((n, i) => (i && block(n) !== block(list[i - 1]) ? " " : "") + n.data + (spaced.has(n) ? " " : "")).join("")), lines: boxes};
  };
  const of = element => near(element.getBoundingClientRect()) ? piece(nodes(element)) : null;
  const block = node => {
    let e = node.parentElement;
    while (e !== document.body && getComputedStyle(e).display.startsWith("inline")) e = e.parentElement;
    return e;
  };
  const blocks = list => {
    const out = [];
    let home = null;
    for (const node of list) {
      const own = block(node);
      if (own !== home) out.push([]);
      home = own;
      out[out.length - 1].push(node);
    }
    return out;
  };
  const plain = list => clean(list.map(n => n.data).join(" "));

  // A definition: all of it if it is in the picture and no more than 12 lines, else its first block.
  const definition = list => {
    if (!list.length) return null;
    const whole = list.length < 400 && piece(list);
    if (whole && whole.lines.length <= 12) return whole;
    const start = piece(blocks(list.slice(0, 200))[0]);
    return start && count(start.text) >= 5 ? start : null;
  };

  const words = [], text = [];
  for (const node of all) {
    range.selectNodeContents(node);
    const around = range.getBoundingClientRect(), parent = node.parentElement;
    if (!near(around) || !printed(parent)) continue;
    const style = getComputedStyle(parent), upper = style.textTransform === "uppercase", find = /\S+/g;
    text.push(node.data);
    for (let m; (m = find.exec(node.data));) {
      range.setStart(node, m.index); range.setEnd(node, m.index + m[0].length);
      const rects = range.getClientRects(), r = rects[0];
      if (rects.length !== 1 || r.width < 1 || r.height < 1 || !inside(r) || !free(r, parent)) continue;
      words.push([upper ? m[0].toUpperCase() : m[0], r.left, r.top, r.right, r.bottom, parseFloat(style.fontSize)]);
    }
  }

  const titles = [], sections = [], headings = [...document.querySelectorAll(HEADING)];
  for (const heading of headings) {
    const label = near(heading.getBoundingClientRect()) && of(heading);
    if (!label || label.text.length > 90) continue;
    if (heading.tagName === "H1") titles.push(label);
    let home = heading.parentElement, own = nodes(heading), list = [];
    for (; home; home = home.parentElement) {  // the nearest ancestor that has the section's text too
      list = [];
      for (let i = first.get(heading) + own.length; i < all.length && home.contains(all[i]); i++) {
        if (all[i].parentElement.closest(HEADING) || list.length > 300) break;
        list.push(all[i]);
      }
      if (home === document.body || count(plain(list)) >= 6) break;
    }
    if (count(plain(list)) < 6) continue;
    const parts = blocks(list), start = piece(parts[0]);
    sections.push({label, all: list.length > 300 ? null : piece(list), start: start && count(start.text) >= 8 ? start : null});
  }

  const terms = [];
  const define = (named, content, name) => {
    const label = near(named.getBoundingClientRect()) && of(named), meaning = label && definition(content);
    if (meaning && label.text.length <= 160) terms.push({name: name || label.text, label, meaning});
  };
  for (const dt of document.querySelectorAll("dt")) {
    if (!near(dt.getBoundingClientRect()) || dt.closest(".toc,nav")) continue;
    let dd = dt.nextElementSibling;
    if (!dd || dd.tagName !== "DD" || (dt.previousElementSibling && dt.previousElementSibling.tagName === "DT")) continue;
    const name = dt.querySelector(".descname,.sig-name") || dt.querySelector("code,b,strong");
    define(dt, nodes(dd), name && !name.contains(dt) ? clean(name.textContent) : "");
  }
  for (const item of document.querySelectorAll(".memitem")) {  // doxygen
    const named = item.querySelector(".memproto"), doc = item.querySelector(".memdoc"), name = item.querySelector(".memname");
    if (named && doc) define(named, nodes(doc), name ? clean(name.textContent).split(" ").pop().split("::").pop() : "");
  }
  for (const item of document.querySelectorAll("li,p")) {  // "Name: what it is"
    if (!near(item.getBoundingClientRect())) continue;
    const named = item.querySelector("b,strong,code,tt,em,dfn,a"), own = nodes(item);
    if (!named || !own.length || !named.contains(own[0]) || own.length > 60) continue;
    const rest = own.filter(n => !named.contains(n));
    if (rest.length && /^\s*[-:–—=(]|^\s+(is|are|means|specifies|returns|contains)\b/.test(rest[0].data) && count(plain(rest)) >= 4)
      define(named, rest, "");
  }

  const crossings = [], values = [];
  for (const table of document.querySelectorAll("table")) {
    if (!near(table.getBoundingClientRect()) || table.querySelector("table") || table.closest(".memproto,.memberdecls,nav")) continue;
    const rows = [...table.rows].filter(row => row.cells.length > 1 && ![...row.cells].some(c => c.colSpan > 1 || c.rowSpan > 1));
    if (!rows.length || rows.length > 400) continue;
    const head = rows[0], labels = [...head.cells].map(c => clean(c.textContent));
    const headed = [...head.cells].every(c => c.tagName === "TH") || (head.parentElement.tagName === "THEAD");
    const firsts = rows.slice(headed ? 1 : 0).map(row => clean(row.cells[0].textContent));
    const single = text => firsts.filter(other => other === text).length === 1;
    for (const row of rows.slice(headed ? 1 : 0)) {
      const name = clean(row.cells[0].textContent);
      if (!name || name.length > 60 || !single(name) || !near(row.getBoundingClientRect())) continue;
      const label = of(row.cells[0]);
      if (!label) continue;
      if (headed && row.cells.length === labels.length) {
        labels.forEach((column, i) => {
          if (!i || !column || column.length > 40 || labels.indexOf(column) !== labels.lastIndexOf(column)) return;
          const top = of(head.cells[i]), cell = top && of(row.cells[i]);
          if (cell && cell.lines.length <= 6) crossings.push({row: label, column: top, cell});
        });
      } else if (!headed && row.cells.length === 2 && rows.length > 1) {
        const value = of(row.cells[1]);
        if (value && value.lines.length <= 8) values.push({label, value});
      }
    }
  }
  if (!ofInterface) return {words, text: text.join(" "), titles, sections, terms, crossings, values};

  // Interfaces: labels beside values, whatever elements they are made of.
  const pairs = [], prices = [], cards = [], controls = [], buttons = [];
  const VALUE = /\d|[$€£¥₹%@]|^(on|off|yes|no|enabled|disabled|active|inactive|pending|paid|none|never)$/i;
  const MONEY = /[$€£¥₹]\s?\d|\d\s?(?:USD|EUR|GBP|CHF)\b/;
  const short = text => /\p{L}{2}/u.test(text) && count(text) <= 6 && text.length <= 48;
  const name = text => short(text) && !VALUE.test(text);
  const weight = node => {
    const style = getComputedStyle(node.parentElement);
    return parseFloat(style.fontSize) + (parseInt(style.fontWeight) >= 600 ? 4 : 0);
  };
  const homes = [...document.body.querySelectorAll("*")].filter(element => {
    if (!first.has(element) || element.closest("table,pre,code,dl")) return false;
    const r = element.getBoundingClientRect();
    return r.width > 8 && r.height > 8 && r.height < H / 2 + 60 && near(r);
  });
  const labelled = (a, b, differ) => {  // [label, value] of two texts that stand together
    const digits = [a, b].map(each => VALUE.test(each.text));
    if (name(a.text) && (digits[1] || a.text.endsWith(":") || (differ && count(a.text) <= 4))) return [a, b];
    return name(b.text) && digits[0] ? [b, a] : null;
  };
  const paired = new Set();
  for (const element of homes.toReversed()) {  // the innermost that holds two texts
    const list = nodes(element);
    if (list.length < 2 || list.length > 24 || list.some(n => paired.has(n))) continue;
    let parts = blocks(list);
    if (parts.length === 1 && list.length === 2 && list[0].parentElement !== list[1].parentElement) parts = [[list[0]], [list[1]]];
    if (parts.length !== 2) continue;
    const [a, b] = parts.map(piece);
    if (!a || !b || a.text === b.text || [a, b].some(each => each.lines.length > 2 || count(each.text) > 12)) continue;
    const gap = Math.max(b.lines[0][1] - a.lines.at(-1)[3], a.lines[0][1] - b.lines.at(-1)[3]);
    if (gap > 2.5 * (a.lines[0][3] - a.lines[0][1])) continue;
    const apart = block(parts[0][0]) !== block(parts[1][0]);  // a mark in two styles is one name
    const pair = labelled(a, b, apart && weight(parts[0][0]) !== weight(parts[1][0]));
    if (!pair) continue;
    list.forEach(n => paired.add(n));
    pairs.push({label: pair[0], value: pair[1]});
  }

  // Cards: the outermost elements of a few texts, of which the heaviest is a name.
  const carded = new Set();
  for (const element of homes) {
    const list = nodes(element);
    if (list.length < 3 || list.length > 40 || list.some(n => carded.has(n))) continue;
    const parts = blocks(list), weights = list.map(weight), most = Math.max(...weights);
    const heavy = list.filter((n, i) => weights[i] === most), head = parts.find(part => part.includes(heavy[0]));
    if (parts.length < 2 || parts.length > 12 || heavy.some(n => !head.includes(n))) continue;
    const label = piece(head), all = label && name(label.text) ? piece(list) : null;
    if (!all || all.lines.length > 16 || count(all.text) < 5) continue;
    list.forEach(n => carded.add(n));
    cards.push({label, all});
    const sums = parts.filter(part => part !== head && MONEY.test(plain(part)) && count(plain(part)) <= 6);
    const value = sums.length === 1 && piece(sums[0]);
    if (value) prices.push({label, value});
  }

  // What is set or typed, with its label; `box` is null where the page draws the control by other means.
  for (const control of document.querySelectorAll("input,select,textarea,[role=switch]")) {
    const before = control.previousElementSibling;
    const named = (control.labels || [])[0] || control.closest("label") || (before && before.tagName === "LABEL" ? before : null);
    const label = named && of(named), r = control.getBoundingClientRect();
    if (!label || !short(label.text) || label.lines.length > 2) continue;
    const toggle = ["checkbox", "radio"].includes(control.type) || control.getAttribute("role") === "switch";
    const drawn = r.width > 6 && r.height > 6 && inside(r) && printed(control) && free(r, control);
    if (!drawn && !toggle) continue;
    const chosen = (control.selectedOptions || [])[0], typed = chosen ? chosen.textContent : control.value || control.placeholder || "";
    const state = control.checked || control.getAttribute("aria-checked") === "true" ? "on" : "off";
    controls.push({label, box: drawn ? [r.left, r.top, r.right, r.bottom] : null, toggle, state: toggle ? state : clean(typed)});
  }
  for (const button of document.querySelectorAll("button,a,[role=button]")) {
    const label = first.has(button) && of(button);
    if (label && label.lines.length === 1 && short(label.text)) buttons.push(label);
  }

  // Lists: three to twelve neighbours of one kind in a row or a column, with what they are headed by.
  const lists = [], spread = (boxes, side) => boxes.every((b, i) => !i || b[0][side] >= boxes[i - 1][0][side + 2] - 2);
  for (const home of document.querySelectorAll("ul,ol,tbody,nav,div,section")) {
    const own = [...home.children].filter(child => first.has(child));
    if (own.length < 3 || own.length > 12 || !near(home.getBoundingClientRect()) || home.closest("pre,code,dl")) continue;
    if (own.some(child => child.tagName !== own[0].tagName || child.classList[0] !== own[0].classList[0])) continue;
    if (/^(P|H\d|BR|HR|SECTION|ARTICLE)$/.test(own[0].tagName)) continue;
    const items = own.map(of);
    if (items.some(item => !item || item.lines.length > 6 || count(item.text) > 24)) continue;
    if (new Set(items.map(item => item.text)).size < items.length) continue;
    const boxes = items.map(item => item.lines), across = spread(boxes, 0);
    if (!across && !spread(boxes, 1)) continue;
    const before = first.get(own[0]) - 1, last = before >= 0 && all[before].parentElement.closest(HEADING);
    const label = last && near(last.getBoundingClientRect()) ? of(last) : null;
    lists.push({label: label && name(label.text) ? label : null, items, across});
  }
  return {words, text: text.join(" "), titles, sections, terms, crossings, values, pairs, prices, cards, controls, buttons, lists};
}
