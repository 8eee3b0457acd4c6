/* Theme and language: what is chosen, and the buttons that change it. */
import { byId } from "./dom.js";
import { recall, remember } from "./local.js";
import { fillTexts, language, t } from "./texts.js";

const themes = ["auto", "light", "dark"];
const names = { auto: "themeAuto", light: "themeLight", dark: "themeDark" };

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const label = t("theme", { x: t(names[theme]) });
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}

function nextTheme() {
  const theme = themes[(themes.indexOf(recall("theme", "auto")) + 1) % themes.length];
  remember("theme", theme);
  showTheme(theme);
}

/** @param {() => void} changed in another language now */
export function startLooks(changed) {
  const show = () => (fillTexts(), showTheme(recall("theme", "auto")));
  byId("theme").addEventListener("click", nextTheme);
  byId("lang").addEventListener("click", () => {
    document.documentElement.lang = language() === "en" ? "pt" : "en";
    remember("lang", language());
    show();
    changed();
  });
  show();
}
