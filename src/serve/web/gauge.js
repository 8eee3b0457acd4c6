/* The memory plan as one bar, with a mark at what is in use now. */
import { el } from "./dom.js";
import { bytes, t } from "./texts.js";

const parts = ["weights", "kv", "borders", "scratch"];

export class Gauge {
  constructor() {
    this.line = el("p", { class: "small" });
    this.segments = Object.fromEntries(parts.map((p) => [p, el("span", { class: "segment " + p })]));
    this.mark = el("span", { class: "mark" });
    this.bar = el("div", { class: "gauge", role: "img" }, ...Object.values(this.segments), this.mark);
    this.sizes = Object.fromEntries(parts.map((p) => [p, el("b")]));
    const legend = parts.map((p) => el("li", {}, el("i", { class: "key " + p }), el("span", { text: t(p) }), this.sizes[p]));
    this.used = el("b");
    legend.push(el("li", {}, el("i", { class: "key mark" }), el("span", { text: t("mInUse") }), this.used));
    this.legend = el("ul", { class: "legend" }, ...legend);
    this.none = el("p", { class: "small", text: t("mNoPlan") });
    this.elements = [this.line, this.bar, this.legend, this.none];
  }

  /** @param {any} s what /state tells */
  show(s) {
    const plan = s.plan;
    this.bar.hidden = this.legend.hidden = !plan;
    this.none.hidden = Boolean(plan) || s.status === "loading";
    this.line.textContent = plan ? t("mMemorySub", { a: bytes(s.resident), b: bytes(plan.total), c: bytes(plan.limit) }) : t("mMemoryOnly", { a: bytes(s.resident) });
    if (!plan) return;
    // The bar ends a little behind the largest of the three, so that a small model is seen on a large machine, too.
    const full = Math.min(Math.max(plan.limit, plan.total, s.resident), Math.max(plan.total, s.resident) * 1.25);
    for (const p of parts) {
      this.segments[p].style.width = (100 * plan[p]) / full + "%";
      this.sizes[p].textContent = bytes(plan[p]);
    }
    this.mark.style.left = Math.min(100, (100 * s.resident) / full) + "%";
    this.used.textContent = bytes(s.resident);
    this.bar.setAttribute("aria-label", this.line.textContent);
  }
}
