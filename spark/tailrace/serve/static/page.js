// Keeps the page as the lake is: when the tables move, the page is asked for again and its content is put in place of
// the old. All that a page says is in its HTML; without this script nothing is missing but the picture of a window.
"use strict";

const night = matchMedia("(prefers-color-scheme: dark)");
const live = document.querySelector(".live");

/* The picture: Vega draws it, its expressions interpreted, since the page's policy forbids code made of text. */
const drawn = new WeakMap();
const ERRORS = 1;

async function draw(place) {
  const answer = await fetch(`${place.dataset.plot}${night.matches ? "&dark=1" : ""}`);
  if (!answer.ok) return;
  const specification = await answer.json();
  drawn.get(place)?.finalize();
  const options = { mode: "vega", renderer: "svg", actions: false, ast: true, defaultStyle: false, logLevel: ERRORS };
  options.loader = { load: refuse };
  // What would be a style within the page is in its sheet.
  options.tooltip = { disableDefaultStyle: true };
  drawn.set(place, await window.vegaEmbed(place, specification, options));
}

async function refuse() {
  throw new Error("a picture fetches nothing");
}

function drawAll() {
  for (const place of document.querySelectorAll("[data-plot]")) draw(place);
}

/* Refreshing. */
let told = null;

function where(element) {
  return element && element !== document.body ? element.id || element.getAttribute("href") : null;
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const main = document.querySelector("main");
  const kept = main.contains(document.activeElement) ? where(document.activeElement) : null;
  // A picture that is there stays until its successor is drawn, or the page would jump.
  for (const place of fresh.querySelectorAll("[data-plot]")) {
    const old = main.querySelector("[data-plot]");
    if (old && old.dataset.plot === place.dataset.plot) place.replaceWith(old);
  }
  main.replaceChildren(...fresh.childNodes);
  if (kept) {
    const links = [...main.querySelectorAll("a, button")];
    (document.getElementById(kept) ?? links.find((one) => where(one) === kept))?.focus({ preventScroll: true });
  }
  drawAll();
}

function say(text) {
  live.hidden = false;
  live.querySelector("span").textContent = text;
  live.classList.toggle("lost", text !== "live");
}

/* A browser keeps few connections to one server: a page that nobody sees gives its own back. */
let news = null;

function listen() {
  news ??= new EventSource("/events");
  news.onmessage = (event) => {
    say("live");
    if (told !== null && told !== event.data) refresh();
    told = event.data;
  };
  news.onerror = () => say("not connected");
}

function leave() {
  news?.close();
  news = null;
}

addEventListener("pagehide", leave);
addEventListener("pageshow", listen);
document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
night.addEventListener("change", drawAll);

/* Arrow keys move within a grid, as in any table of cells. */
document.addEventListener("keydown", (event) => {
  const cell = event.target.closest?.(".grid td, .grid th");
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!cell || !step || event.altKey || event.ctrlKey || event.metaKey) return;
  const rows = [...cell.closest("table").rows];
  let [row, column] = [rows.indexOf(cell.parentElement), cell.cellIndex];
  for (;;) {
    row += step[0];
    column += step[1];
    const next = rows[row]?.cells[column];
    if (!next) return;
    const link = next.querySelector("a");
    if (link) {
      link.focus();
      event.preventDefault();
      return;
    }
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    // Without a secure context there is no clipboard: select the text instead.
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "selected";
  }
});

drawAll();
