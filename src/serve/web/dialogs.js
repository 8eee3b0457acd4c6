/* Dialogs: a question, a confirmation, the API key, the list of keys. */
import { byId, el } from "./dom.js";
import { t } from "./texts.js";

/**
 * Shows a dialog until it is closed. Escape closes it.
 * @param {string} title @param {Node[]} content
 * @param {{label: string, value: string, main?: boolean, quiet?: boolean}[]} buttons one that is main is what Enter does
 * @param {(value: string) => boolean} [check] whether it may close so @param {string} [kind] a class
 * @returns {Promise<string>} the value of the button; "" for Escape
 */
export function dialog(title, content, buttons, check = () => true, kind = "") {
  const before = /** @type {HTMLElement|null} */ (document.activeElement);
  return new Promise((resolve) => {
    const submit = (e) => {
      e.preventDefault();
      const value = e.submitter?.value ?? "";
      if (check(value)) box.close(value);
    };
    const row = el("div", { class: "row end" }, ...buttons.map((b) => el("button", { class: "button " + (b.main ? "main" : "quiet"), value: b.value, type: b.main ? "submit" : "button", text: b.label, on: b.main ? {} : { click: () => check(b.value) && box.close(b.value) } })));
    const form = el("form", { on: { submit } }, el("h2", { id: "dialog-title", text: title }), ...content, row);
    const box = /** @type {HTMLDialogElement} */ (el("dialog", { class: kind, "aria-labelledby": "dialog-title" }, form));
    box.addEventListener("close", () => {
      box.remove();
      before?.focus?.();
      resolve(box.returnValue);
    });
    byId("app").after(box);
    box.showModal();
    (box.querySelector("[data-first]") || box.querySelector("input,textarea,.main"))?.focus();
  });
}

/** A text, or "" when the person does not say. @param {string} title @param {string} value */
export async function ask(title, value) {
  const input = el("input", { type: "text", "aria-label": title, maxlength: "200" });
  input.value = value;
  const answer = await dialog(title, [input], [{ label: t("cancel"), value: "" }, { label: t("save"), value: "ok", main: true }]);
  return answer === "ok" ? input.value.trim() : "";
}

/** @param {string} title @param {string} text @param {string} label of the button that does it @param {boolean} [only] no other */
export async function confirm(title, text, label, only = false) {
  const buttons = [{ label: t("cancel"), value: "" }, { label, value: "ok", main: true }];
  return (await dialog(title, [el("p", { text })], only ? buttons.slice(1) : buttons)) === "ok";
}

/** @param {boolean} wrong the one that was given @returns {Promise<string|null>} */
export async function askKey(wrong) {
  const input = el("input", { type: "password", "aria-label": t("keyLabel"), autocomplete: "off", required: true });
  const content = [wrong && el("p", { class: "bad", role: "alert", text: t("keyWrong") }), input, el("p", { class: "small", text: t("keyHint") })].filter(Boolean);
  const answer = await dialog(t("keyTitle"), content, [{ label: t("cancel"), value: "" }, { label: t("save"), value: "ok", main: true }], () => true, "ask-key");
  return answer === "ok" && input.value.trim() ? input.value.trim() : null;
}

const shortcuts = [
  ["Enter", "kSend"],
  ["Shift+Enter", "kLine"],
  ["Esc", "kStop"],
  ["Alt+N", "kNew"],
  ["Alt+↑  Alt+↓", "kList"],
  ["Alt+,  Alt+.", "kBranch"],
  ["Alt+R", "kAgain"],
  ["Alt+E", "kEdit"],
  ["Alt+T", "kThink"],
  ["Alt+S", "kSettings"],
  ["Alt+L", "kRename"],
  ["Alt+M", "kTab"],
  ["Alt+H", "kHelp"],
];

/** @param {{forget?: () => void}} more what else can be done here */
export async function help(more) {
  const rows = shortcuts.map(([keys, text]) => el("div", {}, el("dt", {}, ...keys.split("  ").flatMap((k, i) => [i ? " " : "", el("kbd", { text: k })])), el("dd", { text: t(text) })));
  const buttons = [{ label: t("close"), value: "", main: true }];
  if (more.forget) buttons.unshift({ label: t("forgetKey"), value: "forget", main: false });
  const answer = await dialog(t("keys"), [el("dl", { class: "shortcuts" }, ...rows), el("p", { class: "small", text: t("credits") })], buttons, () => true, "wide");
  if (answer === "forget") more.forget();
}
