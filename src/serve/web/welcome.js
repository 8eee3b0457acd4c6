/* What an empty conversation shows. */
import { el } from "./dom.js";
import { hasMarkdown } from "./markdown.js";
import { t } from "./texts.js";

/** @param {string} model its name; "" when it is not known yet @param {(text: string) => void} say */
export function welcome(model, say) {
  const tries = ["try1", "try2", "try3"].map((key) => el("button", { type: "button", class: "try", text: t(key), on: { click: () => say(t(key)) } }));
  return el(
    "div",
    { class: "welcome" },
    el("div", { class: "flower", "aria-hidden": "true" }),
    el("h2", { text: t("greeting") }),
    el("p", { text: model ? t("greetingSub", { model }) : t("greetingAlone") }),
    el("div", { class: "tries" }, ...tries),
    !hasMarkdown && el("p", { class: "small", text: t("noMarkdown") }),
  );
}
