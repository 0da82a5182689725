// Words of the field, explained where they stand: on hover, on focus, and to screen readers. Escape closes.

const TERMS = {
  relevance:
    "How much a cell matters for this question, from 0 to 1: what is in it, what stands out and what the question asks for, mixed by their weights.",
  information: "How much there is inside a cell, whatever the question. A uniform cell scores lowest.",
  saliency: "What stands out from its surroundings, whatever the question.",
  coupling: "What couples with the question: how well a cell and its words fit one another.",
  weights: "How strongly each of the three maps counts for this question, each from 0 to 1.",
  tensions: "Three trade-offs from 0 to 1 that the balancer sets for each question; 0.5 is neutral.",
  compress:
    "How many tokens a budget of “auto” spends: more near particularize, fewer near compress. A budget that " +
    "is a number stays as it is.",
  exploit:
    "How much of the budget goes to cells spread over the image: more near explore, none at exploit.",
  focus: "How sharply relevance separates the cells: flatter near diversify, steeper near focus.",
  pull: "The share of the kept cells that would change without this word.",
  IoU:
    "Intersection over union: the cells that both keep, over the cells that either keeps. 1 is the same " +
    "choice, 0 no cell in common.",
  gestalt: "A coarse view of the whole image in few tokens, whatever the question.",
  saccade: "A fine cell that the question points at, read beside the coarse view.",
  "log-prob":
    "How likely the model finds the answer that it gives from all tokens: the mean of its tokens’ " +
    "log-probabilities. 0 is certain; the lower, the less likely.",
  deletion: "The most relevant cells are taken away first. A faithful map makes this curve fall soon.",
  insertion: "Only the most relevant cells are given. A faithful map makes this curve rise soon.",
};
const LINGER = 150; // milliseconds in which the pointer can move from a word to its explanation

/** Explain an element, wherever the pointer or the focus enters it; `focusable` is what gets the focus. */
function explain(target, meaning, focusable = target) {
  if (!meaning) return target;
  focusable.setAttribute("aria-description", meaning);
  const tip = el("div.ac-tip", { "aria-hidden": "true" }, meaning);
  let leaving = 0;
  const hide = () => tip.remove();
  const linger = () => (leaving = setTimeout(hide, LINGER));
  const show = () => {
    clearTimeout(leaving);
    const host = target.closest(".arrcoc");
    if (host === null || tip.isConnected) return;
    for (const other of host.querySelectorAll(":scope > .ac-tip")) other.remove();
    host.append(tip);
    const [around, word, box] = [host, target, tip].map((element) => element.getBoundingClientRect());
    const left = Math.min(word.left - around.left, around.width - box.width);
    const isBelow = word.bottom + box.height < innerHeight || word.top < box.height;
    tip.style.setProperty("left", `${Math.max(0, left)}px`);
    tip.style.setProperty("top", `${(isBelow ? word.bottom : word.top - box.height) - around.top}px`);
  };
  for (const element of [target, tip]) {
    element.addEventListener("pointerenter", show);
    element.addEventListener("pointerleave", linger);
  }
  target.addEventListener("focusin", show);
  target.addEventListener("focusout", hide);
  target.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  return target;
}

/** A word with its explanation, which the focus can reach. */
const term = (text, meaning = TERMS[text]) =>
  meaning ? explain(el("dfn.ac-term", { tabindex: 0 }, text), meaning) : el("span", {}, text);
