/* What an empty conversation shows. */
import { el } from "./dom.js";
import { hasMarkdown } from "./markdown.js";
import { t } from "./texts.js";

/* What the demo model can answer, which knows nothing of the world, and English only. */
const ofDemo = ["Tell me a short story about a fox and a lantern.", "My locker code is 4417. What is my locker code?", "What does lily pack do?"];

/** @param {string} model its name; "" when it is not known yet @param {(text: string) => void} say */
export function welcome(model, say) {
  const texts = model === "demo" ? ofDemo : [t("try1"), t("try2"), t("try3")];
  const tries = texts.map((text) => el("button", { type: "button", class: "try", text, on: { click: () => say(text) } }));
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
