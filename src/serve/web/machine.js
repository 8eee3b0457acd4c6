/* The view "Machine": what GET /state tells, again and again while somebody looks. */
import { send } from "./api.js";
import { el } from "./dom.js";
import { Gauge } from "./gauge.js";
import { Plot } from "./plot.js";
import { bytes, duration, number, t } from "./texts.js";

const EVERY_MS = 1000;

/** A number with its name. @returns {{element: HTMLElement, set: (text: string, state?: string) => void}} */
function tile(label) {
  const value = el("dd");
  const set = (text, state = "") => {
    if (value.textContent !== text) value.textContent = text;
    value.dataset.state = state;
  };
  return { element: el("div", { class: "tile" }, el("dt", { text: label }), value), set };
}

const panel = (title, ...content) => el("section", { class: "panel" }, el("h2", { text: title }), ...content);

/** A table that keeps its rows. @param {string[]} heads @param {string} none what to say without rows */
function table(title, heads, none) {
  const body = el("tbody"), empty = el("p", { class: "small", text: none }), line = el("p", { class: "small" });
  const whole = el("div", { class: "table", tabindex: "0", role: "region", "aria-label": title }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col", text: h })))), body));
  const set = (rows) => {
    whole.hidden = !rows.length;
    empty.hidden = rows.length > 0;
    body.replaceChildren(...rows.map((r) => el("tr", {}, ...r.map((text) => el("td", { text })))));
  };
  return { element: panel(title, line, whole, empty), line, set };
}

export class Machine {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.timer = 0;
    this.on = false;
    this.#build();
    document.addEventListener("visibilitychange", () => this.watch(this.on));
  }

  #build() {
    this.tiles = Object.fromEntries(["mStatus", "mActive", "mQueued", "mContext", "mUptime"].map((key) => [key, tile(t(key))]));
    this.gauge = new Gauge();
    this.plot = new Plot();
    this.jobs = table(t("mJobs"), [t("cRequest"), t("cState"), t("cPrompt"), t("cAge")], t("mNoJobs"));
    this.borders = table(t("mBorders"), [t("cTokens"), t("cSize"), t("cWhere"), t("cHits"), t("cAge")], t("mNoBorders"));
    this.model = el("p", { class: "model" });
    const tiles = el("dl", { class: "tiles" }, ...Object.values(this.tiles).map((x) => x.element));
    this.root.replaceChildren(el("div", { class: "sheet" }, this.model, tiles, panel(t("mSpeed"), ...this.plot.elements), panel(t("mMemory"), ...this.gauge.elements), this.jobs.element, this.borders.element));
  }

  renderAnew() {
    this.#build();
    if (this.last) this.#show(this.last);
  }

  /** @param {boolean} on whether somebody looks */
  watch(on) {
    this.on = on;
    clearTimeout(this.timer);
    if (on && !document.hidden) this.#ask();
  }

  async #ask() {
    const begun = performance.now();
    try {
      this.#show((this.last = await (await send("/state")).json()));
    } catch {
      this.tiles.mStatus.set(t("s_gone"), "failed");
    }
    clearTimeout(this.timer);
    if (this.on && !document.hidden) this.timer = setTimeout(() => this.#ask(), Math.max(100, EVERY_MS - (performance.now() - begun)));
  }

  #show(s) {
    this.model.textContent = s.model;
    this.tiles.mStatus.set(t("s_" + s.status), s.status);
    this.tiles.mActive.set(number(s.active));
    this.tiles.mQueued.set(number(s.queued) + " / " + number(s.queue_limit));
    this.tiles.mContext.set(number(s.context));
    if (s.uptime_s !== undefined) this.tiles.mUptime.set(duration(Math.round(s.uptime_s) * 1000));
    this.gauge.show(s);
    this.plot.show(s.history);
    this.jobs.set(s.requests.map((r) => [r.path, t("s_" + r.state) + (r.state === "queued" ? " · " + r.position : ""), r.prompt_tokens === undefined ? "" : number(r.read) + " / " + number(r.prompt_tokens), duration(r.age_ms)]));
    this.borders.set(borderRows(s));
    const c = s.cache;
    this.borders.line.textContent = c ? t("mCacheSub", { a: bytes(c.bytes), b: bytes(c.budget), hits: c.hits, misses: c.misses }) : "";
  }
}

/** Saved states, the longest first. @returns {string[][]} */
function borderRows(s) {
  const all = (s.cache?.list || []).slice().sort((a, b) => b.tokens - a.tokens);
  return all.map((b) => [number(b.tokens), bytes(b.bytes), t(b.on_disk ? "cDisk" : "cMemory"), number(b.hits), duration(Math.round(b.age_s) * 1000)]);
}
