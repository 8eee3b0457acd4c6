/* The list of conversations: open, rename, delete, export, import. */
import { announce, byId, el, iconButton } from "./dom.js";
import { ask, confirm } from "./dialogs.js";
import * as store from "./store.js";
import { t } from "./texts.js";

/** @typedef {import("./chat.js").Chat} Chat @typedef {import("./tree.js").Conversation} Conversation */

const DAY = 86400000;

/** @param {number} when ms @returns {string} the heading it stands under */
function groupOf(when) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (when >= midnight) return "today";
  if (when >= midnight - DAY) return "yesterday";
  return when >= midnight - 6 * DAY ? "week" : "earlier";
}

export class Sidebar {
  /** @param {Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.nav = byId("list");
    /** @type {Conversation[]} */
    this.all = [];
    byId("export").addEventListener("click", () => this.exportAll());
    byId("import").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", (e) => this.#importFile(/** @type {any} */ (e.target)));
    byId("new").addEventListener("click", () => (this.close(), chat.startNew(), byId("ask").focus()));
    byId("menu").addEventListener("click", () => this.toggle());
    byId("shade").addEventListener("click", () => this.close());
  }

  /* On a narrow screen the list lies over the conversation. */
  get isOpen() {
    return document.body.classList.contains("side-open");
  }
  toggle() {
    const open = document.body.classList.toggle("side-open");
    byId("menu").setAttribute("aria-expanded", String(open));
    if (open) byId("new").focus();
  }
  close() {
    if (!this.isOpen) return;
    this.toggle();
    byId("menu").focus();
  }

  async refresh() {
    this.all = await store.list();
    const parts = [];
    let group = "", items = null;
    for (const c of this.all) {
      const g = groupOf(c.updated);
      if (g !== group) parts.push(el("h2", { id: "g-" + g, text: t((group = g)) }), (items = el("ul", { "aria-labelledby": "g-" + g })));
      items.append(this.#item(c));
    }
    if (!parts.length) parts.push(el("p", { class: "none", text: t("noChats") }));
    const focused = document.activeElement?.closest("[data-conv]")?.dataset.conv;
    this.nav.replaceChildren(...parts);
    if (focused) this.nav.querySelector('[data-conv="' + focused + '"] .open-conv')?.focus();
  }

  #item(c) {
    const here = c.id === this.chat.conv.id, title = c.title || t("untitled");
    const busy = [...this.chat.runs.values()].some((r) => r.tree.conv.id === c.id);
    const open = el("button", { type: "button", class: "open-conv" + (busy ? " busy" : ""), "aria-current": here ? "true" : null, title, on: { click: () => (this.close(), this.chat.openConversation(c)) } }, el("span", { text: title }));
    const more = el("span", { class: "row-tools" }, iconButton("edit", t("rename") + ": " + title, () => this.rename(c), "rename"), iconButton("trash", t("remove") + ": " + title, () => this.#remove(c), "remove"));
    return el("li", { data: { conv: c.id } }, open, more);
  }

  /** @param {Conversation} [c] the one that is open */
  async rename(c = this.chat.conv) {
    const title = await ask(t("rename"), c.title);
    if (title) this.chat.rename(c.id, title);
  }

  async #remove(c) {
    if (await confirm(t("removeAsk", { x: c.title || t("untitled") }), t("removeSure"), t("remove"))) this.chat.remove(c.id);
  }

  /** Opens the one before (-1) or after (1) in the list. */
  step(by) {
    const at = this.all.findIndex((c) => c.id === this.chat.conv.id);
    const next = this.all[at < 0 ? 0 : at + by];
    if (next) this.chat.openConversation(next);
  }

  async exportAll() {
    const all = [], { toText } = await import("./transfer.js");
    for (const conversation of await store.list()) all.push({ conversation, messages: await store.messages(conversation.id) });
    const url = URL.createObjectURL(new Blob([toText(all)], { type: "application/json" }));
    el("a", { href: url, download: "lily-" + new Date().toISOString().slice(0, 10) + ".json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  async #importFile(input) {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    try {
      const { fromText } = await import("./transfer.js");
      const all = fromText(await file.text());
      await store.put(all.map((c) => c.conversation), all.flatMap((c) => c.messages));
      announce(t("imported", { n: all.length }));
      await this.refresh();
    } catch {
      await confirm(t("importBad"), file.name, t("close"), true);
    }
  }
}
