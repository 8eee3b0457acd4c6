/* Blocks of code: their head with the language and the copy button, and lines that are added in parts. */
import { el, icon, announce } from "./dom.js";
import { t } from "./texts.js";

const LINES = 80; // of one part; what is out of sight is not laid out

/** @param {string} text @param {HTMLElement} button that shows that it was done */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // without TLS there is no clipboard, except on this machine
  }
  const before = button.firstChild;
  button.replaceChild(icon("check"), before);
  announce(t("copied"));
  setTimeout(() => button.firstChild && button.replaceChild(before, button.firstChild), 1500);
}

function copyBySelection(text) {
  const area = el("textarea", { class: "sr" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function head(lang, text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": t("copyCode") }, icon("copy"), el("span", { text: t("copy") }));
  button.addEventListener("click", () => copy(text(), button));
  return el("figcaption", {}, el("span", { class: "lang", text: lang || t("code") }), button);
}

const figure = (lang, text, code) => el("figure", { class: "code" }, head(lang, text), el("pre", { tabindex: "0", role: "group", "aria-label": t("code") + (lang ? ": " + lang : "") }, code));

/** Code that came as markup (inside lists and quotes) gets a head, too. @param {DocumentFragment} fragment */
export function dressCode(fragment) {
  for (const pre of fragment.querySelectorAll("pre")) {
    const text = pre.textContent, lang = /language-(\S+)/.exec(pre.firstElementChild?.className || "")?.[1] || "";
    pre.replaceWith(figure(lang, () => text, el("code", { text })));
  }
}

/** A block of code that grows. */
export class Code {
  /** @param {string} lang */
  constructor(lang) {
    this.text = "";
    this.code = el("code");
    this.rest = el("span", { class: "part" });
    this.part = null;
    this.count = 0;
    this.code.append(this.rest);
    this.element = figure(lang.slice(0, 30), () => this.text + this.rest.textContent, this.code);
  }

  /** @param {string} text whole lines, but for the very last one */
  lines(text) {
    this.rest.textContent = "";
    this.text += text;
    const lines = text.match(/[^\n]*\n|[^\n]+$/g) || [];
    while (lines.length) {
      if (!this.part || this.count >= LINES) {
        this.part = el("span", { class: "part" });
        this.count = 0;
        this.rest.before(this.part);
      }
      const some = lines.splice(0, LINES - this.count);
      this.part.append(some.join(""));
      this.count += some.length;
    }
  }

  /** @param {string} text the last, open line */
  open(text) {
    this.rest.textContent = text;
  }
}
