/* The page's side of Markdown: the worker, its watch, and the sanitiser that every piece of markup passes. */
import "./purify.js";

const PATIENCE_MS = 4000;
const purify = globalThis.DOMPurify;

const allowed = {
  ALLOWED_TAGS: ["a", "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "del", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "title", "align", "start", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  KEEP_CONTENT: true,
  RETURN_DOM_FRAGMENT: true,
};

/** Attributes that are left: links lead away without a word about where from; the only class is a language's. */
function afterAttributes(node) {
  if (node.nodeName === "A" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  const name = node.getAttribute?.("class");
  if (name && !(node.nodeName === "CODE" && /^language-[\w+#.-]{1,30}$/.test(name))) node.removeAttribute("class");
}
if (purify) purify.addHook("afterSanitizeAttributes", afterAttributes);

/** @param {string} html from the worker @returns {DocumentFragment} */
export const sanitize = (html) => /** @type {any} */ (purify.sanitize(html, allowed));

const url = "/web/md_worker.js";
const policy = globalThis.trustedTypes?.createPolicy("lily", { createScriptURL: (u) => (u === url ? u : "") });

/** @type {Worker|null} */
let worker = null;
/** Who waits for an answer of the worker, by id. @type {Map<number, {take: (ops: any[]|null) => void, timer: number}>} */
const waiting = new Map();
let lastId = 0;

/** The worker did not answer: a new one starts, and whoever waited gets null. */
function giveUp() {
  worker?.terminate();
  worker = null;
  const all = [...waiting.values()];
  waiting.clear();
  for (const w of all) {
    clearTimeout(w.timer);
    w.take(null);
  }
}

function start() {
  worker = new Worker(policy ? policy.createScriptURL(url) : url, { type: "module" });
  worker.onerror = giveUp;
  worker.onmessage = ({ data }) => {
    const w = waiting.get(data.id);
    waiting.delete(data.id);
    clearTimeout(w?.timer);
    w?.take(data.ops);
  };
}

/** Whether this build has what Markdown needs. */
export const hasMarkdown = Boolean(purify);

export const newId = () => ++lastId;

/**
 * Sends a piece of a text to the worker. take gets what to do, or null when the parser is stuck.
 * @param {{id: number, text?: string, end?: boolean}} piece @param {(ops: any[]|null) => void} take
 */
export function parse(piece, take) {
  if (!worker) start();
  waiting.set(piece.id, { take, timer: setTimeout(giveUp, PATIENCE_MS) });
  worker.postMessage(piece);
}

/** @param {number} id a text that nobody looks at any more */
export function drop(id) {
  const w = waiting.get(id);
  if (w) clearTimeout(w.timer);
  waiting.delete(id);
  worker?.postMessage({ id, drop: true });
}
