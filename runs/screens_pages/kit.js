// What the pages share: seeded words, a look, a clock, a spinner, dialogs, menus and notes.
const seed = Number(new URLSearchParams(location.search).get("seed") || 1);
let state = seed * 2654435761 >>> 0;
const random = () => { state = (state + 0x6d2b79f5) >>> 0; let t = Math.imul(state ^ state >>> 15, 1 | state);
  t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t; return ((t ^ t >>> 14) >>> 0) / 4294967296; };
const below = n => Math.floor(random() * n);
const pick = list => list[below(list.length)];
const NAMES = "Ada Lund,Bela Kiss,Chen Wei,Dora Novak,Emil Roth,Fatma Aydin,Goran Ilic,Hana Sato,Igor Pavlov,Jana Bauer,Karim Said,Lea Martin,Milo Ricci,Nora Dahl,Omar Haddad,Petra Vogel".split(",");
const NOUNS = "lamp,kettle,garden chair,notebook,rain coat,bicycle,wool blanket,desk,camera,tea pot,backpack,mirror,clock,guitar,tent,bread knife".split(",");
const ADJECTIVES = "blue,large,quiet,folding,steel,wooden,light,used,new,round,small,heavy,soft,bright".split(",");
const VERBS = "arrived,was moved,needs a signature,is late,was paid,is ready,was refused,has a new date,waits for you,was returned".split(",");
const thing = () => `${pick(ADJECTIVES)} ${pick(NOUNS)}`;
const sentence = () => `The ${thing()} ${pick(VERBS)} on ${1 + below(28)} ${pick(["March", "April", "May", "June"])}.`;
const money = () => (5 + random() * 900).toFixed(2);
function el(tag, fields, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(fields || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "css") made.style.cssText = value;
    else if (name in made && name !== "list") made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children); return made;
}
const button = (text, act, kind = "") => el("button", {className: "b " + kind, onclick: act}, text);
const field = (text, value = "") => el("label", {className: "f"}, el("span", {}, text), el("input", {className: "t", value}));
const link = (text, act) => el("a", {onclick: act, "data-way": "1"}, text);
const dark = below(4) === 0, accent = pick(["#1f5fbf", "#7a3fa0", "#12715b", "#b3411e", "#34495e"]);
const look = dark
  ? {ink: "#e8e8ea", paper: "#1d1f24", side: "#262930", line: "#3c4049", hover: "#31353e", dim: "#a0a4ad"}
  : {ink: "#1c1e22", paper: "#ffffff", side: "#f4f5f7", line: "#d5d8de", hover: "#eceef2", dim: "#6a6f78"};
for (const [name, value] of Object.entries({...look, accent, font: pick(["15px", "16px", "17px"]),
  face: pick(["DejaVu Sans", "Liberation Sans", "DejaVu Serif"])})) document.documentElement.style.setProperty("--" + name, value);
function dialog(title, content, buttons) {
  const shade = el("div", {className: "scrim" + (seed % 5 === 4 ? " pale" : "")});
  const row = el("div", {className: "buttons"}, ...buttons.map(([text, act], at) => button(text, () => { shade.remove(); act && act(); },
    at === buttons.length - 1 ? "go" : "")));
  shade.append(el("div", {className: "dialog"}, el("h1", {}, title), ...content, row)); document.body.append(shade);
}
function menu(at, entries) {
  document.querySelectorAll(".menu").forEach(one => one.remove());
  const box = at.getBoundingClientRect();
  const made = el("div", {className: "menu", css: `left:${Math.min(box.left, innerWidth - 220)}px;top:${box.bottom + 4}px`},
    ...entries.map(([text, act]) => el("a", {onclick: event => { event.stopPropagation(); made.remove(); act && act(); }}, text)));
  document.body.append(made);
  setTimeout(() => document.addEventListener("click", () => made.remove(), {once: true}));
}
function note(text) {
  document.querySelectorAll(".toast").forEach(one => one.remove());
  const made = el("div", {className: "toast"}, text); document.body.append(made); setTimeout(() => made.remove(), 5000);
}
document.addEventListener("keydown", event => { if (event.key === "Escape")
  document.querySelectorAll(".scrim,.menu").forEach(one => one.remove()); });
// The frame of a page: a header with a clock (by some with seconds) and a spinner while something loads.
function shell(title, tools, entries, open) {
  const clock = el("span", {}), spin = el("div", {className: "spin", css: "visibility:hidden"});
  const tick = () => { clock.textContent = new Date().toTimeString().slice(0, seed % 3 === 0 ? 8 : 5); };
  tick(); setInterval(tick, 1000);
  let turn = 0; setInterval(() => { turn += 37; spin.style.transform = `rotate(${turn}deg)`; }, 100);
  const main = el("main"), side = el("nav");
  const go = number => {
    side.querySelectorAll("a").forEach((one, at) => one.classList.toggle("on", at === number));
    main.replaceChildren(); main.scrollTop = 0; spin.style.visibility = "visible";
    setTimeout(() => { spin.style.visibility = "hidden"; }, 1500 + below(9000)); open(main, number, go);
  };
  side.append(...entries.map((text, at) => link(text, () => go(at))));
  document.body.append(el("header", {}, el("b", {}, title), ...tools, el("span", {className: "gap"}), spin, clock),
    el("div", {className: "body"}, ...(entries.length ? [side] : []), main));
  go(0); return main;
}
