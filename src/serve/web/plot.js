/* Tokens a second over the last minutes, drawn on a canvas: what was written as a line, what was read as an area behind it. */
import { el } from "./dom.js";
import { duration, number, t } from "./texts.js";

const HEIGHT = 190, LEFT = 46, BOTTOM = 22, TOP = 10;

/** A round number above v, for the scale. */
export function ceiling(v) {
  if (v <= 0) return 10;
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((m) => m * power).find((c) => c >= v);
}

export class Plot {
  constructor() {
    this.line = el("p", { class: "small" });
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "plot", role: "img" }));
    this.now = { written: el("b"), read: el("b") };
    const key = (name, label) => el("li", {}, el("i", { class: "key " + name }), el("span", { text: label }), this.now[name]);
    this.elements = [this.line, this.canvas, el("ul", { class: "legend" }, key("written", t("mWritten")), key("read", t("mRead")))];
    new ResizeObserver(() => this.last && this.show(this.last)).observe(this.canvas);
  }

  /** @param {{step_s: number, generated: number[], read: number[]}|undefined} h tokens in each step, the oldest first */
  show(h) {
    if (!h) return;
    this.last = h;
    const written = h.generated.map((v) => v / h.step_s), read = h.read.map((v) => v / h.step_s);
    this.line.textContent = t("mSpeedSub", { x: duration(Math.max(1, written.length) * h.step_s * 1000) });
    this.now.written.textContent = number(written.at(-1) || 0);
    this.now.read.textContent = number(read.at(-1) || 0);
    this.canvas.setAttribute("aria-label", t("nSpeed", { x: this.now.written.textContent }));
    this.#draw(written, read);
  }

  #draw(written, read) {
    const width = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.width = width * ratio;
    this.canvas.height = HEIGHT * ratio;
    const c = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    c.scale(ratio, ratio);
    c.font = "12px " + style.fontFamily;
    // Reading is much faster than writing: each has its own scale, written's is on the axis.
    const top = ceiling(Math.max(...written, 1)), topRead = ceiling(Math.max(...read, 1));
    this.#axes(c, width, top, color);
    this.#curve(c, width, read, topRead, color("--plot-read"), true);
    this.#curve(c, width, written, top, color("--plot-written"), false);
  }

  #axes(c, width, top, color) {
    c.strokeStyle = color("--line");
    c.fillStyle = color("--soft");
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - part)) + 0.5;
      c.beginPath();
      c.moveTo(LEFT, y);
      c.lineTo(width, y);
      c.stroke();
      c.fillText(number(top * part, top < 2 && part ? 1 : 0), LEFT - 10, y);
    }
    c.textBaseline = "alphabetic";
    c.textAlign = "left";
    c.fillText("−" + duration((this.last.generated.length || 1) * this.last.step_s * 1000), LEFT, HEIGHT - 4);
    c.textAlign = "right";
    c.fillText("0 s", width, HEIGHT - 4);
  }

  #curve(c, width, values, top, color, area) {
    if (values.length < 2) return;
    const x = (i) => LEFT + ((width - LEFT) * i) / (values.length - 1);
    const y = (v) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - v / top);
    c.beginPath();
    for (const [i, v] of values.entries()) c.lineTo(x(i), y(v));
    if (area) {
      c.lineTo(width, y(0));
      c.lineTo(LEFT, y(0));
      c.fillStyle = color;
      c.fill();
      return;
    }
    c.strokeStyle = color;
    c.lineWidth = 2;
    c.lineJoin = "round";
    c.stroke();
  }
}
