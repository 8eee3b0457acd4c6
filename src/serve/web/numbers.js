/* What is known about an answer: how far it is, and its numbers. */
import { el } from "./dom.js";
import { duration, number, t } from "./texts.js";

/** @typedef {import("./tree.js").Message} Message */

/** What an answer waits for, with a bar while the prompt is read. @param {HTMLElement} box @param {import("./deltas.js").Writing|null} writing */
export function progressLine(box, writing) {
  const waits = writing && !writing.pieces;
  box.hidden = !waits;
  if (!waits) return box.replaceChildren();
  if (!box.firstChild) box.append(el("span", { class: "dots", "aria-hidden": "true" }, el("i"), el("i"), el("i")), el("span", { class: "words" }), el("progress", { "aria-label": t("reading", { a: "", b: "" }) }));
  const [, words, bar] = /** @type {any} */ (box.children), p = writing.progress;
  let text = t("waiting");
  if (p?.state === "queued") text = p.position > 0 ? t("queued", { n: p.position }) : t("queuedNext");
  if (p?.state === "prefill" && p.total) text = t("reading", { a: p.done, b: p.total });
  if (words.textContent !== text) words.textContent = text;
  bar.hidden = p?.state !== "prefill" || !p.total;
  if (!bar.hidden) (bar.max = p.total), (bar.value = p.done);
}

/** The line under an answer. Made anew only when a text in it changes. @param {HTMLElement} box @param {Message} m @param {boolean} writing */
export function numbersLine(box, m, writing) {
  const n = m.numbers || {}, parts = [];
  if (n.first_ms !== undefined) parts.push(t("nFirst", { x: duration(n.first_ms) }));
  if (n.speed) parts.push(t("nSpeed", { x: number(n.speed, n.speed < 100 ? 1 : 0) }));
  if (n.tokens) parts.push(t("nTokens", { n: n.tokens }));
  if (n.prompt) parts.push(t("nReused", { a: n.reused || 0, b: n.prompt }));
  const key = [writing, ...parts].join();
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  while (box.children.length > parts.length) box.lastChild.remove();
  for (const [i, text] of parts.entries()) {
    const span = box.children[i] || box.appendChild(el("span"));
    if (span.textContent !== text) span.textContent = text;
  }
  if (!writing && n.prompt) box.append(whyNot(n));
}

/** Why not all of the prompt came from the cache. */
function whyNot(n) {
  const why = el("details", { class: "why" }, el("summary", { text: t("nWhy") })), r = n.why;
  if (typeof r === "string" && r) why.append(el("p", { text: r }));
  else if (r?.why === "differs") why.append(...difference(r));
  else why.append(el("p", { text: t(reasons[r?.why] || "nGrid") }));
  return why;
}
const reasons = { new: "nNew", dropped: "nDropped", off: "nOff" };

/** The first difference: in which message, the text that was read before, the text now. */
function difference(r) {
  const line = (label, text) => [el("dt", { text: label }), el("dd", {}, el("code", { text: String(text) }))];
  const where = Number.isFinite(r.message) ? t("nDiffers", { i: r.message + 1 }) : t("nDiffersHead");
  return [el("p", { text: where }), el("dl", {}, ...(r.was === undefined ? [] : line(t("nWas"), r.was)), ...line(t("nIs"), r.is ?? ""))];
}
