/* The form with a conversation's settings. */
import { dialog } from "./dialogs.js";
import { el } from "./dom.js";
import { meansEmpty, sampling } from "./request.js";
import { t } from "./texts.js";

const labelled = (label, input, more) => el("label", { class: "field" }, el("span", { text: label }), input, more);

function numberInput(name, min, max, step, hint, value) {
  const input = el("input", { type: "number", name, min, max, step: step < 1 ? "any" : step, placeholder: hint, inputmode: "decimal" });
  if (Number.isFinite(value)) input.value = String(value);
  return input;
}

/** @returns {{ok: boolean, tools: any[]|undefined}} */
function readTools(text) {
  if (!text.trim()) return { ok: true, tools: undefined };
  try {
    const tools = JSON.parse(text);
    return { ok: Array.isArray(tools), tools };
  } catch {
    return { ok: false, tools: undefined };
  }
}

/** The settings that a form says. */
function read(form, tools) {
  const out = { system: form.system.value.trim(), thinking: form.thinking.checked };
  for (const name of ["thinking_budget", ...sampling.map((s) => s.name)]) {
    const v = form[name].value.trim();
    if (v !== "" && Number.isFinite(Number(v))) out[name] = Number(v);
  }
  if (tools?.length) out.tools = tools;
  return out;
}

/**
 * Shows the form. @param {Object} settings @param {Object} defaults of sampling, as the server said them last
 * @param {Promise<Object>} present what it says now, as soon as that is known @returns {Promise<Object|null>} the new ones, or null
 */
export async function editSettings(settings, defaults, present) {
  const system = el("textarea", { name: "system", rows: "4", placeholder: t("systemHint"), "data-first": true });
  system.value = settings.system || "";
  const thinking = el("input", { type: "checkbox", name: "thinking", role: "switch" });
  thinking.checked = settings.thinking !== false;
  const budget = numberInput("thinking_budget", 1, 1048576, 1, t("noLimit"), settings.thinking_budget);
  const tools = el("textarea", { name: "tools", rows: "3", class: "mono", spellcheck: "false", placeholder: "[]" });
  tools.value = settings.tools ? JSON.stringify(settings.tools, null, 1) : "";
  const bad = el("p", { class: "bad", role: "alert", hidden: true, text: t("toolsBad") });
  const inputs = sampling.map((s) => numberInput(s.name, s.min, s.max, s.step, meansEmpty(s, defaults), settings[s.name]));
  const grid = el("div", { class: "grid" }, ...sampling.map((s, i) => labelled(t(s.name), inputs[i])));
  present.then((now) => sampling.forEach((s, i) => (inputs[i].placeholder = meansEmpty(s, now))));
  const content = [
    labelled(t("system"), system),
    el("label", { class: "switch" }, thinking, el("span", { text: t("thinkingOn") })),
    labelled(t("budget"), budget),
    el("fieldset", {}, el("legend", { text: t("samplingHead") }), el("p", { class: "small", text: t("samplingSub") }), grid),
    labelled(t("tools"), tools, el("span", { class: "small", text: t("toolsHint") })),
    bad,
  ];
  let out = null;
  const check = (value) => {
    if (value !== "ok") return true;
    const got = readTools(tools.value);
    bad.hidden = got.ok;
    if (!got.ok) tools.focus();
    else out = read(system.form, got.tools);
    return got.ok;
  };
  await dialog(t("settings"), content, [{ label: t("cancel"), value: "" }, { label: t("save"), value: "ok", main: true }], check, "wide drawer");
  return out;
}
