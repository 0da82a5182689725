// What of a page not everybody can use: text that hardly stands out from its ground, and controls without a name.
({
  pale: (least) => {
    const parse = (text) => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
    const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
    const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const rgb = (text) => {
      if (text.startsWith("rgb")) return parse(text);
      const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
      context.fillStyle = text;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
      return [r, g, b, a / 255];
    };
    const ground = (element) => {
      if (!element) return [255, 255, 255, 1];
      const own = rgb(getComputedStyle(element).backgroundColor);
      return own[3] === 1 ? own : over(own, ground(element.parentElement));
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const pale = [];
    while (walker.nextNode()) {
      const [text, element] = [walker.currentNode.textContent.trim(), walker.currentNode.parentElement];
      if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (element.closest("button:disabled, svg, [aria-hidden=true], .ac-unseen, .arrcoc-live, script, style")) continue;
      const style = getComputedStyle(element);
      const [one, other] = [light(over(rgb(style.color), ground(element))), light(ground(element))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (other + 0.05);
      const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
      if (ratio < (isLarge ? 3 : least)) pale.push(`${ratio.toFixed(2)} ${text.slice(0, 40)} <${element.className}>`);
    }
    return pale;
  },

  nameless: () => [...document.querySelectorAll("button, input, select, textarea, summary, img, [role=application], canvas[tabindex]")]
    .filter((one) => one.checkVisibility() && one.type !== "file" && !one.closest("[aria-hidden=true]"))
    .filter((one) => {
      if (one.tagName === "IMG") return !one.hasAttribute("alt");
      const label = one.labels && [...one.labels].map((label) => label.innerText).join("");
      const by = one.getAttribute("aria-labelledby");
      return !(one.getAttribute("aria-label") || label || one.innerText?.trim() || one.title || by && document.getElementById(by)
        || one.querySelector?.("[aria-label], img[alt]:not([alt=''])"));
    })
    .map((one) => one.outerHTML.slice(0, 200)),

  // What a mouse can use and Tab didn't stop at; the radios of a group are one stop.
  missed: (stops) => {
    const group = (stop) => stop.type === "radio" ? [...document.getElementsByName(stop.name)] : [stop];
    const reached = stops.flatMap(group).flatMap((stop) => [stop, ...stop.labels ?? []]);
    const points = (one) => /pointer|crosshair|help|grab/.test(getComputedStyle(one).cursor);
    return [...document.querySelectorAll("body *")]
      .filter((one) => one.matches("a, button, input, select, textarea, summary, [role=tab], [role=button]") || points(one))
      .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(":disabled, [aria-hidden=true]"))
      .filter((one) => !reached.some((stop) => stop.contains(one) || one.contains(stop)))
      .map((one) => one.outerHTML.slice(0, 200));
  },

  // Stops that come after what is seen below them, or to their right: of two parts of the page, the higher is read first.
  astray: (stops) => {
    const parts = (one, other) => {
      const over = (inner) => inner.contains(other) ? inner : over(inner.parentElement);
      const under = (inner) => inner.parentElement === over(one) ? inner : under(inner.parentElement);
      return [one, other].map((inner) => under(inner).getBoundingClientRect());
    };
    const isAfter = ([one, other]) => other.top > one.top + 12 || (other.top > one.top - 12 && other.left >= one.left);
    return stops.slice(1).filter((stop, i) => !isAfter(parts(stops[i], stop))).map((stop) => stop.outerHTML.slice(0, 200));
  },
})
