/*
 * The view of a text that grows. In each frame at most one piece of it goes to the parser and what the parser said last is
 * shown, so that a frame's work does not depend on the length of the text.
 */
import { el } from "./dom.js";
import { Code, dressCode } from "./code.js";
import { drop, hasMarkdown, newId, parse, sanitize } from "./markdown.js";

const PIECE = 3000, BLOCKS = 24, BUDGET_MS = 6;

export class Flow {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.id = newId();
    this.text = "";
    this.sent = 0;
    this.ended = this.over = this.busy = this.planned = false;
    this.plain = !hasMarkdown;
    /** @type {any[]} */
    this.ops = [];
    this.open = el("div", { class: "open" });
    this.section = null;
    this.code = null;
    root.replaceChildren(this.open);
  }

  /** @param {string} text all there is; what was shown is its beginning @param {boolean} ended nothing follows */
  set(text, ended) {
    this.text = text;
    this.ended = ended;
    this.#plan();
  }

  free() {
    this.over = true;
    drop(this.id);
  }

  #plan() {
    if (this.planned || this.over) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.#frame();
    });
  }

  #frame() {
    if (this.over) return;
    if (this.plain) return this.#showPlain();
    this.#show();
    if (!this.busy && !this.ops.length) this.#send();
  }

  #send() {
    const text = this.text.slice(this.sent, this.sent + PIECE);
    if (!text && !this.ended) return;
    this.busy = true;
    this.sent += text.length;
    parse(text ? { id: this.id, text } : { id: this.id, end: true }, (ops) => this.#got(ops, !text));
  }

  #got(ops, last) {
    this.busy = false;
    if (!ops) return this.#stuck();
    this.ops.push(...ops);
    if (last) this.ops.push({ op: "over" });
    this.#plan();
  }

  /** The parser is stuck in this text: the open block and what follows are shown as they are. */
  #stuck() {
    this.plain = true;
    this.sent = Math.max(0, this.sent - PIECE);
    this.open.replaceChildren();
    this.#plan();
  }

  #showPlain() {
    const text = this.text.slice(this.sent, this.sent + 4 * PIECE);
    this.sent += text.length;
    if (text) {
      if (!this.line || this.line.textContent.length > PIECE) this.#place((this.line = el("div", { class: "plain" })));
      this.line.append(text);
    }
    if (this.sent < this.text.length) this.#plan();
    else if (this.ended) this.over = true;
  }

  /** As many of the parser's words as fit into a frame. */
  #show() {
    const until = performance.now() + BUDGET_MS;
    let n = 0;
    while (n < this.ops.length && performance.now() < until) this.#apply(this.ops[n++]);
    this.ops.splice(0, n);
    if (this.ops.length || this.sent < this.text.length || this.ended) this.#plan();
  }

  #apply({ op, html, more, lang, text }) {
    if (op === "block") this.#block(html, more);
    else if (op === "open") this.#showOpen(html, more);
    else if (op === "code") this.#place((this.code = new Code(lang)).element);
    else if (op === "lines") this.code.lines(text);
    else if (op === "rest") this.code.open(text);
    else if (op === "over") this.over = true;
    if (op !== "open") this.open.replaceChildren();
  }

  #showOpen(html, more) {
    const fragment = sanitize(html);
    dressCode(fragment);
    this.open.classList.toggle("more", Boolean(more));
    this.open.replaceChildren(fragment);
  }

  #block(html, more) {
    const fragment = sanitize(html);
    const rows = more && fragment.querySelector("tbody"), table = this.section?.querySelector("table:last-of-type > tbody");
    if (rows && table) return void table.append(...rows.children);
    dressCode(fragment);
    this.#place(fragment);
  }

  /** Blocks stand in sections: a section out of sight costs nothing. */
  #place(node) {
    if (!this.section || this.section.childElementCount >= BLOCKS) {
      this.section?.classList.add("full");
      this.section = el("div", { class: "section" });
      this.open.before(this.section);
    }
    this.section.append(node);
  }
}
