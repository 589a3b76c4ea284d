// The state of the page, and everything that changes it.

import { BoxEnds, ColumnCard, fillAxes } from "./controls.js";
import { curveLayout, drawCurve } from "./curve.js";
import { Link, fetchModel } from "./link.js";
import { drawPair } from "./pair.js";
import { drawPlane, planeLayout } from "./plane.js";
import { between, densityText, isCounted, numberText, percentText } from "./scales.js";

const SAMPLES = 300;
const byId = (id) => document.getElementById(id);
const canvas = byId("figure");
const ctx = canvas.getContext("2d");
const state = { shown: [0], box: null, seed: 1, cross: null };
let columns, cards, picture, asked, drawn, drag, files;

const link = new Link({
  onPicture: (found, of) => {
    [picture, asked] = [found, of];
    byId("trouble").hidden = true;
    requestAnimationFrame(render);
  },
  onTrouble: (message) => {
    byId("trouble").textContent = message;
    byId("trouble").hidden = false;
  },
});
const ends = new BoxEnds(byId("ends"), (box) => setBox(box, { write: false }));

const currentState = () => {
  const free = cards.filter((card) => !state.shown.includes(card.number) && card.fixed);
  return {
    shown: state.shown,
    given: Object.fromEntries(free.map((card) => [card.number, Number(card.value.value)])),
    box: state.box,
    samples: byId("samples").checked ? SAMPLES : 0,
    seed: state.seed,
  };
};
const ask = ({ draft = false } = {}) => {
  document.body.dataset.settled = "false";
  return link.ask(currentState(), { draft });
};

const setShown = (shown) => {
  state.shown = shown;
  [state.box, state.cross, state.anchor] = [null, null, null];
  byId("probability").textContent = "–";
  byId("across").value = shown[0];
  byId("up").value = shown[1] ?? "";
  for (const id of ["swap", "contours"]) byId(id).disabled = shown.length < 2;
  cards.forEach((card) => (card.element.hidden = shown.includes(card.number)));
  const others = columns.length - shown.length;
  byId("where-note").textContent = others ? "tick or slide to fix a column" : "no other columns";
  for (const id of ["fix-all", "free-all"]) byId(id).disabled = !others;
  ends.rebuild(shown.map((k) => columns[k]));
  ask();
};

// A box is a pair of ends for each column shown; null ends are open.
const setBox = (box, { write = true, draft = true } = {}) => {
  const wrong = box?.some(([a, b]) => Number.isNaN(a) || Number.isNaN(b) || (a !== null && b !== null && a > b));
  if (wrong) return;
  state.box = box;
  if (write) ends.write(box);
  if (box === null) byId("probability").textContent = "–";
  if (picture) render();
  ask({ draft });
};

const render = () => {
  const width = canvas.parentElement.clientWidth;
  const narrow = width < 520;
  const plane = picture.ends.length === 2;
  const layout = (plane ? planeLayout : curveLayout)(width, narrow);
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(layout.height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    canvas.style.aspectRatio = `${w} / ${h}`;
  }
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, layout.height);
  const style = getComputedStyle(document.documentElement);
  const theme = Object.fromEntries(["ink", "soft", "line", "curve", "box"].map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
  const shown = asked.shown.map((k) => columns[k]);
  const names = shown.map(({ name }) => name);
  if (!plane) names.push(isCounted(shown[0]) ? "probability" : "density");
  const options = { samples: byId("samples").checked, contours: byId("contours").checked };
  drawn = { plane, area: layout.area, ...(plane ? drawPlane : drawCurve)(ctx, { picture, layout, theme, options, names, columns: shown }) };
  drawBox(theme);
  drawCross(theme);
  byId("pair").hidden = !picture.other;
  if (picture.other) byId("pair-note").textContent = drawPair(byId("beside"), { picture, width, theme, names, files, columns: shown });
  tell();
};

const boxCorners = () => {
  const { area, x, y, plane } = drawn;
  const clamp = (v, a, b) => Math.min(Math.max(v, a), b);
  const across = (v, open) => (v === null ? open : clamp(x(v), area.left, area.right));
  const up = (v, open) => (v === null ? open : clamp(y(v), area.top, area.bottom));
  const [[x0, x1], [y0, y1] = [null, null]] = state.box;
  const rows = plane ? [up(y1, area.top), up(y0, area.bottom)] : [area.top, area.bottom];
  return [across(x0, area.left), across(x1, area.right), ...rows];
};

const drawBox = (theme) => {
  if (!state.box || state.box.length !== picture.ends.length) return;
  const [left, right, top, bottom] = boxCorners();
  ctx.fillStyle = theme.box;
  ctx.globalAlpha = drawn.plane ? 0.12 : 0.16;
  ctx.fillRect(left, top, right - left, bottom - top);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = drawn.plane ? "#ff9f5a" : theme.box;
  ctx.lineWidth = 2;
  ctx.strokeRect(left, top, right - left, bottom - top);
};

const drawCross = (theme) => {
  if (!state.cross) return;
  const { area, x, y, plane } = drawn;
  ctx.strokeStyle = plane ? "rgba(255, 255, 255, .8)" : theme.ink;
  ctx.lineWidth = 1;
  ctx.setLineDash([5, 4]);
  ctx.beginPath();
  ctx.moveTo(x(state.cross[0]), area.top);
  ctx.lineTo(x(state.cross[0]), area.bottom);
  if (plane) {
    ctx.moveTo(area.left, y(state.cross[1]));
    ctx.lineTo(area.right, y(state.cross[1]));
  }
  ctx.stroke();
  ctx.setLineDash([]);
};

const widthOf = (k) => columns[k].ends[1] - columns[k].ends[0];
const valueText = (k, value) => {
  const { labels, kind } = columns[k];
  if (labels) return labels[Math.min(Math.max(Math.round(value), 0), labels.length - 1)];
  return kind === "integer" ? String(Math.round(value)) : numberText(value, widthOf(k));
};
const shownText = (k, value) => `${columns[k].name} = ${valueText(k, value)}`;
const share = (value, [low, high]) => (value - low) / (high - low);

const densityAtCross = () => {
  const { density, points: n, ends: range } = picture;
  const [first, second] = state.cross.map((value, k) => share(value, range[k]));
  if (second === undefined) return between(density, n, first);
  const row = Float32Array.from({ length: n }, (_, i) => between(density, n, second, i * n));
  return between(row, n, first);
};

// Everything that is said in words and numbers.
const tell = () => {
  const names = asked.shown.map((k) => columns[k].name).join(" and ");
  const given = Object.entries(asked.given).map(([k, value]) => shownText(k, value));
  byId("headline").replaceChildren(names, Object.assign(document.createElement("span"), {
    className: "soft",
    textContent: given.length ? `  where ${given.join(", ")}` : columns.length > asked.shown.length ? "  whatever the other columns are" : "",
  }));
  const lines = picture.quantiles.map(([low, middle, high], i) => {
    const k = asked.shown[i];
    if (columns[k].labels) return `${shownText(k, middle)} most often`;
    return `${shownText(k, middle)}, ${valueText(k, low)} to ${valueText(k, high)}`;
  });
  byId("quantiles").textContent = lines.join("\n");
  if (state.box && picture.probability !== null) {
    const both = [picture, picture.other].filter((one) => one && one.probability !== null);
    byId("probability").textContent = both.map((one) => percentText(one.probability, picture.draft)).join(" | ");
  }
  if (state.cross) {
    const places = state.cross.map((value, k) => shownText(asked.shown[k], value));
    byId("pointer").textContent = `${places.join("\n")}\ndensity = ${densityText(densityAtCross())}`;
  } else byId("pointer").textContent = "–";
  const ms = picture.milliseconds.toFixed(picture.milliseconds < 10 ? 1 : 0);
  const cells = `${picture.points}${asked.shown.length === 2 ? ` × ${picture.points}` : ""}`;
  const how = picture.nodes ? "exact masses of" : "densities in the middle of";
  const settled = `${how} ${cells} cells in ${ms} ms, ${percentText(picture.covered)} of the mass in view`;
  byId("status").textContent = picture.draft ? `moving: ${link.rate} updates a second` : settled;
  document.body.dataset.settled = String(!picture.draft);
  canvas.setAttribute("aria-label", `Density of ${names}${given.length ? ` where ${given.join(", ")}` : ""}. Medians: ${lines.join("; ")}.`);
};

const placeOf = (event) => {
  const at = canvas.getBoundingClientRect();
  const { area, x, y, plane } = drawn;
  const px = Math.min(Math.max(event.clientX - at.left, area.left), area.right);
  const py = Math.min(Math.max(event.clientY - at.top, area.top), area.bottom);
  return plane ? [x.inverse(px), y.inverse(py)] : [x.inverse(px)];
};
const spanned = (a, b) => a.map((value, k) => [Math.min(value, b[k]), Math.max(value, b[k])]);
const contains = (box, place) => box?.every(([low, high], k) => (low ?? -Infinity) < place[k] && place[k] < (high ?? Infinity));

const onDown = (event) => {
  if (!picture || event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  const start = placeOf(event);
  const box = state.box?.flat().every((end) => end !== null) && contains(state.box, start) ? state.box : null;
  drag = { start, box, at: [event.clientX, event.clientY], moved: false };
};
const onMove = (event) => {
  if (!picture) return;
  state.cross = placeOf(event);
  if (drag) {
    drag.moved ||= Math.hypot(event.clientX - drag.at[0], event.clientY - drag.at[1]) > 4;
    const moved = (pair, k) => pair.map((end) => end + state.cross[k] - drag.start[k]);
    if (drag.moved) return setBox(drag.box ? drag.box.map(moved) : spanned(drag.start, state.cross));
  }
  render();
};
const onUp = () => {
  if (drag && !drag.moved && !drag.box) setBox(null);
  drag = null;
};

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
const onKey = (event) => {
  if (!picture) return;
  if (event.key === "Escape") {
    state.anchor = null;
    return setBox(null);
  }
  state.cross ??= picture.quantiles.map((three) => three[1]);
  if (event.key === " ") {
    state.anchor = state.anchor ? null : [...state.cross];
  } else if (event.key in STEPS) {
    const stride = event.shiftKey ? 0.05 : 0.005;
    state.cross = state.cross.map((value, k) => {
      const [low, high] = picture.ends[k];
      return Math.min(Math.max(value + STEPS[event.key][k] * stride * (high - low), low), high);
    });
  } else return;
  event.preventDefault();
  if (state.anchor) return setBox(spanned(state.anchor, state.cross));
  render();
};

const listen = () => {
  byId("across").addEventListener("change", (event) => {
    const k = Number(event.target.value);
    const other = state.shown[1] === k ? state.shown[0] : state.shown[1];
    setShown(other === undefined ? [k] : [k, other]);
  });
  byId("up").addEventListener("change", ({ target: { value } }) => {
    if (value === "") return setShown([state.shown[0]]);
    const first = Number(value) === state.shown[0] ? (state.shown[1] ?? columns.findIndex((_, k) => k !== Number(value))) : state.shown[0];
    setShown([first, Number(value)].filter((k) => k >= 0));
  });
  byId("swap").addEventListener("click", () => setShown(state.shown.toReversed()));
  const every = (fixed) => () => cards.filter((card) => !card.element.hidden).forEach((card) => card.fix(fixed));
  byId("fix-all").addEventListener("click", every(true));
  byId("free-all").addEventListener("click", every(false));
  byId("clear").addEventListener("click", () => setBox(null));
  byId("redraw").addEventListener("click", () => {
    state.seed += 1;
    ask();
  });
  byId("samples").addEventListener("change", () => ask());
  byId("contours").addEventListener("change", render);
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", () => {
    if (drag || !picture) return;
    state.cross = null;
    render();
  });
  canvas.addEventListener("keydown", onKey);
  new ResizeObserver(() => picture && render()).observe(canvas.parentElement);
  addEventListener("resize", () => picture && render());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => picture && render());
};

const WORDS = { features: (n) => `${n} features`, rank: (n) => `rank ${n}`, base: (text) => `${text} base` };
const start = async () => {
  const model = await fetchModel();
  columns = model.columns;
  const { file, second, ...facts } = model.facts;
  files = [file, second];
  byId("title").textContent = second ? `${file} and ${second}` : (file ?? "Density explorer");
  document.title = `${file ?? "Density"} – explorer`;
  const said = Object.entries(facts).map(([key, value]) => (WORDS[key] ?? String)(value));
  said.splice(1, 0, `${columns.length} column${columns.length === 1 ? "" : "s"}`);
  byId("facts").append(...said.map((textContent) => Object.assign(document.createElement("li"), { textContent })));
  fillAxes(byId("across"), byId("up"), columns);
  cards = columns.map((column, k) => new ColumnCard(column, k, (how) => ask(how)));
  byId("columns").append(...cards.map((card) => card.element));
  listen();
  setShown(columns.length > 1 ? [0, 1] : [0]);
};
start().catch((error) => {
  byId("trouble").textContent = `The page could not start: ${error.message}`;
  byId("trouble").hidden = false;
});
