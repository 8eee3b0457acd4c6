/* From the path of messages and the settings to the body of a request. No DOM. */

/** @typedef {import("./tree.js").Message} Message */

/**
 * What can be set: name, smallest, largest, step. Empty means what the server says (default_sampling of /v1/models), and where it says nothing, the hint.
 * @type {{name: string, min: number, max: number, step: number, hint?: string}[]}
 */
export const sampling = [
  { name: "temperature", min: 0, max: 2, step: 0.05 },
  { name: "top_p", min: 0, max: 1, step: 0.01 },
  { name: "top_k", min: 0, max: 1000, step: 1 },
  { name: "min_p", min: 0, max: 1, step: 0.01 },
  { name: "presence_penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", min: -2, max: 2, step: 0.1 },
  { name: "repetition_penalty", min: 0.1, max: 2, step: 0.05 },
  { name: "max_tokens", min: 1, max: 1048576, step: 1, hint: "∞" },
  { name: "seed", min: 0, max: 9007199254740991, step: 1, hint: "?" },
];

/** What an empty field means. @param {{name: string, hint?: string}} field @param {Object} defaults those of the server; {} when they are not known */
export const meansEmpty = ({ name, hint }, defaults) => (Number.isFinite(defaults[name]) ? String(defaults[name]) : hint || "");

/** @param {Message} m */
function assistant(m) {
  const out = { role: "assistant", content: m.text };
  if (m.thought) out.reasoning_content = m.thought;
  if (m.calls?.length) out.tool_calls = m.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.args || "{}" } }));
  return out;
}

/** An answer that came to nothing is not part of what was said. @param {Message} m */
const isSaid = (m) => m.role === "user" || Boolean(m.text || m.calls?.length);

/** @param {Object} settings @returns {Object} the fields that are set */
function settingFields(settings) {
  const out = {};
  for (const { name } of sampling) if (Number.isFinite(settings[name])) out[name] = settings[name];
  if (settings.thinking === false) out.enable_thinking = false;
  else if (Number.isFinite(settings.thinking_budget)) out.thinking_budget = settings.thinking_budget;
  if (Array.isArray(settings.tools) && settings.tools.length) out.tools = settings.tools;
  return out;
}

/** @param {Message[]} path up to the message that is to be answered @param {Object} settings @returns {Object} */
export function requestBody(path, settings = {}) {
  const messages = path.filter(isSaid).map((m) => (m.role === "user" ? { role: "user", content: m.text } : assistant(m)));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  return { messages, stream: true, stream_options: { include_usage: true }, lily: { progress: true }, ...settingFields(settings) };
}
