/* The conversation on the screen: sends, stops, answers again, edits, branches; several may be answered at once. */
import { announce, byId, el } from "./dom.js";
import { recall, remember } from "./local.js";
import { requestBody } from "./request.js";
import { Run } from "./run.js";
import { Scroll } from "./scroll.js";
import * as store from "./store.js";
import { t } from "./texts.js";
import { Tree, newId } from "./tree.js";
import { MessageView } from "./view.js";
import { welcome } from "./welcome.js";

/** @typedef {import("./tree.js").Message} Message @typedef {import("./tree.js").Conversation} Conversation */

const SAVE_MS = 1000, TITLE = 60;

export class Chat {
  /** @param {{listChanged: () => void, stateChanged: () => void}} told */
  constructor(told) {
    this.told = told;
    this.log = byId("log");
    this.scroll = new Scroll(byId("scroll"), byId("down"));
    /** @type {Map<string, MessageView>} */
    this.views = new Map();
    /** Answers that are being written, by the message's id. @type {Map<string, {run: Run, tree: Tree, saved: number}>} */
    this.runs = new Map();
    this.changed = new Set();
    this.model = "";
    this.tree = this.#fresh();
  }

  /** A conversation that is not stored before something is said. */
  #fresh() {
    const now = Date.now();
    return new Tree({ id: newId(), title: "", created: now, updated: now, picked: null, settings: { ...recall("settings", {}), system: "" } });
  }

  get conv() {
    return this.tree.conv;
  }

  /** The answer that is being written here. */
  get running() {
    const last = this.tree.path().at(-1);
    return last && this.runs.get(last.id);
  }

  startNew() {
    this.#show(this.#fresh());
  }

  /** @param {Conversation} conv */
  async openConversation(conv) {
    const running = [...this.runs.values()].find((r) => r.tree.conv.id === conv.id);
    this.#show(running ? running.tree : new Tree(conv, await store.messages(conv.id)));
  }

  #show(tree) {
    this.#clear();
    this.tree = tree;
    this.render();
    if (tree.path().length) this.scroll.toEnd(true);
    else this.scroll.toStart();
    this.told.listChanged();
  }

  #clear() {
    for (const v of this.views.values()) v.free();
    this.views.clear();
    this.log.replaceChildren();
  }

  /** In another language: everything anew. */
  renderAnew() {
    this.#clear();
    this.render();
  }

  /** Brings the page to the tree: a view for each message of the path, in order. */
  render() {
    const path = this.tree.path(), ids = new Set(path.map((m) => m.id));
    for (const [id, view] of this.views) if (!ids.has(id)) (view.free(), this.views.delete(id));
    this.log.querySelector(".welcome")?.remove();
    for (const m of path) {
      const view = this.views.get(m.id) || new MessageView(m, this.#deeds());
      this.views.set(m.id, view);
      this.log.append(view.element);
      this.#update(m);
    }
    if (!path.length) this.log.append(welcome(this.model, (text) => this.say(text)));
    byId("title").textContent = this.conv.title || t("untitled");
    document.title = (this.conv.title ? this.conv.title + " · " : "") + "lily";
    this.told.stateChanged();
  }

  #deeds() {
    return {
      branch: (m, step) => this.branch(m, step),
      edit: (m, text) => this.#ask(m.parent, text),
      again: (m) => this.again(m),
    };
  }

  #update(m) {
    const all = this.tree.children(m.parent), run = this.runs.get(m.id);
    this.views.get(m.id)?.update(run ? run.run.writing : null, { i: all.indexOf(m), n: all.length });
  }

  /* ---- deeds ---- */

  /** Says something behind the last message. @param {string} text */
  say(text) {
    if (this.running) return;
    this.#ask(this.tree.path().at(-1)?.id ?? null, text);
  }

  #ask(parent, text) {
    const m = this.tree.add(parent, { role: "user", text });
    if (!this.conv.title) this.conv.title = text.replace(/\s+/g, " ").trim().slice(0, TITLE);
    this.#answer(m);
  }

  /** Another answer to the same message. @param {Message} m the answer that is there */
  again(m) {
    if (!this.runs.has(m.id)) this.#answer(this.tree.byId.get(m.parent));
  }

  againLast() {
    const last = this.tree.path().findLast((m) => m.role === "assistant");
    if (last && !this.running) this.again(last);
  }

  editLast() {
    const last = this.tree.path().findLast((m) => m.role === "user");
    if (last && !this.running) this.views.get(last.id)?.startEdit();
  }

  /** Shows the next or the earlier version of a message. */
  branch(m, step) {
    const next = this.tree.sibling(m, step);
    if (!next) return;
    const place = this.views.get(m.id)?.element.getBoundingClientRect().top;
    this.tree.pick(next);
    this.#store([]);
    store.put([], this.tree.byId.has(next.parent) ? [this.tree.byId.get(next.parent)] : []);
    this.render();
    this.scroll.keep(this.views.get(next.id)?.element, place);
    this.views.get(next.id)?.element.querySelector(step < 0 ? ".back:enabled,.on" : ".on:enabled,.back")?.focus();
  }

  /** The version before or behind at the last place where there are several. */
  branchLast(step) {
    const last = this.tree.path().findLast((m) => this.tree.children(m.parent).length > 1);
    if (last) this.branch(last, step);
  }

  stop() {
    this.running?.run.stop();
  }

  /** @param {Message} question */
  #answer(question) {
    const m = this.tree.add(question.id, { role: "assistant" });
    const path = this.tree.path();
    const body = requestBody(path.slice(0, path.indexOf(m)), this.conv.settings);
    const run = new Run(m, body, { changed: (r) => this.#written(r), ended: (r) => this.#ended(r) });
    this.runs.set(m.id, { run, tree: this.tree, saved: performance.now() });
    this.conv.updated = Date.now();
    this.#store([question, m]);
    this.render();
    this.scroll.toEnd(true);
    this.told.listChanged();
  }

  /* ---- while answers are written ---- */

  #written(run) {
    this.changed.add(run);
    if (this.planned) return;
    this.planned = true;
    const look = () => ((this.planned = false), this.#frame());
    if (document.hidden) setTimeout(look, 250);
    else requestAnimationFrame(look);
  }

  #frame() {
    const now = performance.now();
    for (const run of this.changed) {
      const at = this.runs.get(run.message.id);
      if (!at) continue;
      if (at.tree === this.tree) this.#update(run.message);
      if (now - at.saved < SAVE_MS) continue;
      at.saved = now;
      store.put([], [{ ...run.message, finish: "dropped" }]);
    }
    this.changed.clear();
  }

  #ended(run) {
    const m = run.message, { tree } = this.runs.get(m.id);
    this.runs.delete(m.id);
    tree.conv.updated = Date.now();
    store.put([tree.conv], [m]);
    if (tree === this.tree) this.#update(m);
    this.told.listChanged();
    this.told.stateChanged();
    announce(t(m.finish === "dropped" ? "dropped" : m.finish === "stopped" ? "stopped" : "answered"));
  }

  /* ---- what is kept ---- */

  #store(messages) {
    const parents = messages.map((m) => this.tree.byId.get(m.parent)).filter(Boolean);
    // What is written now counts as broken off until it is complete: the page may be closed meanwhile.
    return store.put([this.conv], [...parents, ...messages].map((m) => (this.runs.has(m.id) ? { ...m, finish: "dropped" } : m)));
  }

  /** @param {Object} settings */
  setSettings(settings) {
    this.conv.settings = settings;
    const { system, ...general } = settings;
    remember("settings", general);
    if (this.tree.byId.size) this.#store([]);
    this.told.stateChanged();
  }

  /** @param {string} id @param {string} title */
  async rename(id, title) {
    const conv = id === this.conv.id ? this.conv : (await store.list()).find((c) => c.id === id);
    conv.title = title.slice(0, 200);
    await store.put([conv]);
    if (conv === this.conv) this.render();
    this.told.listChanged();
  }

  /** @param {string} id */
  async remove(id) {
    for (const [, r] of this.runs) if (r.tree.conv.id === id) (r.run.stop(), await r.run.finished);
    await store.remove(id);
    if (id === this.conv.id) this.startNew();
    this.told.listChanged();
  }
}
