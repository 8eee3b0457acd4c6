/* Conversations as one JSON file, out and in. What is read is checked: the file may come from anywhere. */
import { sampling } from "./request.js";
import { newId } from "./tree.js";

/** @typedef {import("./tree.js").Message} Message @typedef {import("./tree.js").Conversation} Conversation */

export const FORMAT = "lily-conversations";

/** @param {{conversation: Conversation, messages: Message[]}[]} all */
export function toText(all) {
  return JSON.stringify({ format: FORMAT, version: 1, conversations: all }, null, 1);
}

const text = (v) => (typeof v === "string" ? v : "");
const number = (v) => (Number.isFinite(v) ? v : 0);
const plain = (v) => (v && typeof v === "object" && !Array.isArray(v) ? v : undefined);
const call = (c) => ({ id: text(c?.id), name: text(c?.name), args: text(c?.args) });

/** The members of these names that are numbers. */
function numbers(o, names) {
  return Object.fromEntries(names.filter((n) => Number.isFinite(o?.[n])).map((n) => [n, o[n]]));
}

function settings(s) {
  const out = numbers(s, ["thinking_budget", ...sampling.map((x) => x.name)]);
  if (text(s?.system)) out.system = s.system;
  if (s?.thinking === false) out.thinking = false;
  if (Array.isArray(s?.tools)) out.tools = s.tools;
  return out;
}

/** One message with new ids, or null. @returns {Message|null} */
function message(m, conv, ids) {
  if (!plain(m) || !ids.has(m.id) || (m.role !== "user" && m.role !== "assistant")) return null;
  const parent = m.parent === null || m.parent === undefined ? null : ids.get(m.parent);
  if (parent === undefined) return null;
  const out = { id: ids.get(m.id), conv, parent, role: m.role, text: text(m.text), created: number(m.created), picked: ids.get(m.picked) || null };
  if (m.role === "user") return out;
  Object.assign(out, { thought: text(m.thought), thought_ms: number(m.thought_ms), finish: text(m.finish) || "stop", error: text(m.error) });
  if (Array.isArray(m.calls)) out.calls = m.calls.map(call);
  out.numbers = numbers(m.numbers, ["first_ms", "speed", "tokens", "prompt", "reused"]);
  return out;
}

/** A parent may not be below its own child. @param {Message[]} all */
function hasLoop(all) {
  const byId = new Map(all.map((m) => [m.id, m]));
  const fine = new Set();
  for (let m of all) {
    const seen = new Set();
    while (m && !fine.has(m.id)) {
      if (seen.has(m.id)) return true;
      seen.add(m.id);
      m = byId.get(m.parent);
    }
    for (const id of seen) fine.add(id);
  }
  return false;
}

function conversation(c) {
  const list = plain(c) && Array.isArray(c.messages) ? c.messages : null;
  if (!list || !plain(c.conversation)) return null;
  const ids = new Map(list.filter((m) => typeof m?.id === "string").map((m) => [m.id, newId()]));
  const id = newId();
  const messages = list.map((m) => message(m, id, ids)).filter(Boolean);
  if (hasLoop(messages)) return null;
  const from = c.conversation;
  return {
    conversation: {
      id,
      title: text(from.title).slice(0, 200),
      created: number(from.created),
      updated: number(from.updated),
      picked: ids.get(from.picked) || null,
      settings: settings(from.settings),
    },
    messages,
  };
}

/**
 * The conversations of a file, with new ids, so that nothing is overwritten. Throws when it is no such file.
 * @param {string} source @returns {{conversation: Conversation, messages: Message[]}[]}
 */
export function fromText(source) {
  const file = JSON.parse(source);
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error("format");
  return file.conversations.map(conversation).filter(Boolean);
}
