// Measures, in CSS px of the viewport: every visible word with its box and font size, and the pieces' lines.
() => {
  const W = innerWidth, H = innerHeight, words = [], pieces = {};
  const inside = r => r.left >= -1 && r.top >= -1 && r.right <= W + 1 && r.bottom <= H + 1;
  const visible = r => r.width > 0 && r.height > 0 && inside(r);
  const lines = range => [...range.getClientRects()].filter(r => r.width > 0.5 && r.height > 0.5);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement;
    if (!parent || ["STYLE", "SCRIPT", "TITLE", "NOSCRIPT"].includes(parent.tagName)) continue;
    let style = null;
    const find = /\S+/g;
    for (let m; (m = find.exec(node.data));) {
      range.setStart(node, m.index); range.setEnd(node, m.index + m[0].length);
      const rects = lines(range), r = rects[0];
      if (rects.length !== 1 || !visible(r)) continue;
      style = style || getComputedStyle(parent);
      if (style.visibility === "hidden" || +style.opacity < 0.1) continue;
      const edges = [r.left];
      for (let k = m.index; k < m.index + m[0].length; k++) {
        range.setStart(node, k); range.setEnd(node, k + 1);
        edges.push(range.getBoundingClientRect().right);
      }
      const text = style.textTransform === "uppercase" ? m[0].toUpperCase() : m[0];
      words.push([text, r.left, r.top, r.right, r.bottom, parseFloat(style.fontSize), edges]);
    }
  }
  for (const element of document.querySelectorAll("[data-piece]")) {
    let rects;
    if (element.hasAttribute("data-block")) rects = [element.getBoundingClientRect()];
    else { range.selectNodeContents(element); rects = lines(range); }
    const whole = rects.length > 0 && rects.every(visible);
    pieces[element.dataset.piece] = [whole, rects.map(r => [r.left, r.top, r.right, r.bottom])];
  }
  return {words, pieces, height: document.documentElement.scrollHeight};
}
