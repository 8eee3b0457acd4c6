/* One message on the page: its parts, and what can be done with it. */
import { el, icon, iconButton } from "./dom.js";
import { copy } from "./code.js";
import { Flow } from "./flow.js";
import { numbersLine, progressLine } from "./numbers.js";
import { duration, t } from "./texts.js";

/** @typedef {import("./tree.js").Message} Message */

const LONG = 1200; // letters
const NUMBERS_MS = 200;

/**
 * What a view asks of the chat.
 * @typedef {Object} Deeds
 * @property {(m: Message, step: number) => void} branch
 * @property {(m: Message, text: string) => void} edit
 * @property {(m: Message) => void} again
 */

export class MessageView {
  /** @param {Message} message @param {Deeds} deeds */
  constructor(message, deeds) {
    this.message = message;
    this.deeds = deeds;
    this.numbersAt = 0;
    const user = message.role === "user";
    this.body = el("div", { class: user ? "bubble" : "prose" });
    this.actions = el("div", { class: "actions" });
    this.element = el("article", { class: "message " + message.role, data: { id: message.id } }, el("h2", { class: "sr", text: t(user ? "you" : "it") }));
    if (user) this.#makeUser();
    else this.#makeAssistant();
  }

  #makeUser() {
    this.body.textContent = this.message.text;
    // A long one scrolls in itself, by keyboard, too.
    if (this.message.text.length > LONG) for (const [k, v] of Object.entries({ class: "bubble long", tabindex: "0", role: "region", "aria-label": t("you") })) this.body.setAttribute(k, v);
    this.element.append(this.body, this.actions);
  }

  #makeAssistant() {
    this.flow = new Flow(this.body);
    this.thought = this.#makeThought();
    this.calls = el("div", { class: "calls" });
    this.progress = el("div", { class: "progress" });
    this.note = el("div", { class: "note" });
    this.numbers = el("div", { class: "numbers" });
    this.element.append(this.thought, this.body, this.calls, this.progress, this.note, el("div", { class: "foot" }, this.actions, this.numbers));
  }

  /** Folded; only what is unfolded is rendered. */
  #makeThought() {
    this.thoughtTime = el("span", { class: "time" });
    this.thoughtBody = el("div", { class: "prose quiet" });
    const box = el("details", { class: "thought", hidden: true }, el("summary", {}, icon("think"), this.thoughtTime, icon("down")), this.thoughtBody);
    box.addEventListener("toggle", () => {
      if (box.open && !this.thoughtFlow) this.thoughtFlow = new Flow(this.thoughtBody);
      if (box.open) this.update(this.writing, this.siblings);
    });
    return box;
  }

  /**
   * Shows what the message is now.
   * @param {import("./deltas.js").Writing|null} writing while it is written
   * @param {{i: number, n: number}} siblings
   */
  update(writing, siblings) {
    this.writing = writing;
    this.siblings = siblings;
    this.#updateActions(Boolean(writing));
    if (this.message.role === "user") return;
    const m = this.message;
    this.element.classList.toggle("writing", Boolean(writing));
    this.flow.set(m.text, !writing);
    this.#updateThought(m, Boolean(writing));
    this.#updateCalls(m);
    progressLine(this.progress, writing);
    this.#updateNote(m, writing);
    // Nobody reads numbers that change in every frame.
    if (writing && performance.now() < this.numbersAt + NUMBERS_MS) return;
    this.numbersAt = performance.now();
    numbersLine(this.numbers, m, Boolean(writing));
  }

  #updateThought(m, writing) {
    this.thought.hidden = !m.thought;
    if (!m.thought) return;
    const thinks = writing && !m.text && !m.calls.length;
    const label = t(thinks ? "isThinking" : "thought", { s: m.thought_ms < 100 ? "< " + duration(100) : duration(m.thought_ms || 0) });
    if (this.thoughtTime.textContent !== label) this.thoughtTime.textContent = label;
    this.thought.classList.toggle("now", thinks);
    if (this.thoughtFlow) this.thoughtFlow.set(m.thought, !thinks);
  }

  #updateCalls(m) {
    for (const [i, c] of (m.calls || []).entries()) {
      const old = this.calls.children[i];
      if (old?.dataset.args === c.args) continue;
      const box = el("details", { class: "call", open: old ? old.open : true, data: { args: c.args } }, el("summary", {}, icon("tool"), el("span", { text: t("called", { x: c.name }) }), icon("down")), el("pre", { text: pretty(c.args) }));
      if (old) old.replaceWith(box);
      else this.calls.append(box);
    }
  }

  /** How it ended, where that is worth a word. */
  #updateNote(m, writing) {
    const words = { stopped: t("stopped"), dropped: t("dropped"), error: m.error, length: t("cut") };
    const text = writing ? "" : words[m.finish] || "";
    if (this.note.dataset.text === text) return;
    this.note.dataset.text = text;
    this.note.replaceChildren();
    this.note.classList.toggle("bad", m.finish === "dropped" || m.finish === "error");
    if (!text) return;
    this.note.append(el("span", { text }));
    if (m.finish === "dropped" || m.finish === "error")
      this.note.append(el("button", { type: "button", class: "button small retry", text: t("retry"), on: { click: () => this.deeds.again(m) } }));
  }

  #updateActions(writing) {
    const m = this.message, { i, n } = this.siblings;
    const key = [writing, i, n].join();
    if (this.actionsKey === key) return;
    this.actionsKey = key;
    const parts = [];
    if (n > 1) parts.push(this.#arrows(i, n));
    if (!writing) {
      const button = iconButton("copy", t("copyText"), () => copy(m.text, button), "copy-text");
      parts.push(button);
      if (m.role === "user") parts.push(iconButton("edit", t("edit"), () => this.startEdit(), "edit"));
      else parts.push(iconButton("again", t("again"), () => this.deeds.again(m), "again"));
    }
    this.actions.replaceChildren(...parts);
  }

  #arrows(i, n) {
    const back = iconButton("left", t("before"), () => this.deeds.branch(this.message, -1), "back");
    const on = iconButton("right", t("behind"), () => this.deeds.branch(this.message, 1), "on");
    /** @type {HTMLButtonElement} */ (back).disabled = i === 0;
    /** @type {HTMLButtonElement} */ (on).disabled = i === n - 1;
    return el("span", { class: "arrows", role: "group", "aria-label": t("version", { i: i + 1, n }) }, back, el("span", { class: "count", text: i + 1 + "/" + n }), on);
  }

  /** The message turns into a field. */
  startEdit() {
    if (this.element.querySelector("form")) return;
    const area = el("textarea", { rows: "3", "aria-label": t("editLabel") });
    area.value = this.message.text;
    const end = () => (form.replaceWith(this.body), (this.actions.hidden = false));
    const submit = (e) => {
      e.preventDefault();
      const text = area.value.trim();
      end();
      if (text) this.deeds.edit(this.message, text);
    };
    const buttons = el("div", { class: "row end" }, el("button", { type: "button", class: "button quiet", text: t("cancel"), on: { click: end } }), el("button", { class: "button main", text: t("send") }));
    const form = el("form", { class: "edit-form", on: { submit } }, area, buttons);
    area.addEventListener("keydown", (e) => {
      if (e.key === "Escape") (e.stopPropagation(), end());
      else if (e.key === "Enter" && !e.shiftKey && !e.isComposing) submit(e);
    });
    this.body.replaceWith(form);
    this.actions.hidden = true;
    area.focus();
  }

  free() {
    this.flow?.free();
    this.thoughtFlow?.free();
    this.element.remove();
  }
}

/** Arguments of a call, indented where they are JSON. */
function pretty(args) {
  try {
    return JSON.stringify(JSON.parse(args), null, 2);
  } catch {
    return args;
  }
}
