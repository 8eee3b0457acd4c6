/* A conversation as a tree of messages, of which one path is shown. No DOM, no storage. */

/**
 * @typedef {Object} Message
 * @property {string} id
 * @property {string} conv        id of the conversation
 * @property {string|null} parent null: the conversation begins with it
 * @property {"user"|"assistant"} role
 * @property {string} text
 * @property {number} created     ms
 * @property {string|null} [picked] the child that is shown
 * @property {string} [thought]   the thinking
 * @property {number} [thought_ms]
 * @property {{id: string, name: string, args: string}[]} [calls]
 * @property {string} [finish]    finish_reason, "stopped", "dropped", "error"; absent while it is written
 * @property {string} [error]
 * @property {Object} [numbers]   see deltas.js
 *
 * @typedef {Object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} created
 * @property {number} updated
 * @property {string|null} [picked] the first message that is shown
 * @property {Object} [settings]  see request.js
 */

/** Sorts and compares texts that can be made in any browser. */
export const newId = () => crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

export class Tree {
  /** @param {Conversation} conv @param {Message[]} messages */
  constructor(conv, messages = []) {
    this.conv = conv;
    /** @type {Map<string, Message>} */
    this.byId = new Map(messages.map((m) => [m.id, m]));
  }

  /** The messages below a parent, oldest first. @param {string|null} parent */
  children(parent) {
    const all = [];
    for (const m of this.byId.values()) if (m.parent === parent) all.push(m);
    return all.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  }

  /** The messages that are shown, first to last. @returns {Message[]} */
  path() {
    const below = new Map();
    for (const m of this.byId.values()) below.set(m.parent, (below.get(m.parent) || []).concat(m));
    const out = [];
    let parent = null;
    for (;;) {
      const all = below.get(parent);
      if (!all || out.length > this.byId.size) return out;
      const wanted = parent === null ? this.conv.picked : this.byId.get(parent).picked;
      const next = all.find((m) => m.id === wanted) || all.reduce((a, b) => (b.created > a.created ? b : a));
      out.push(next);
      parent = next.id;
    }
  }

  /** Adds a message below a parent and shows it. @param {string|null} parent @param {Partial<Message>} m @returns {Message} */
  add(parent, m) {
    const last = this.children(parent).at(-1);
    const created = Math.max(Date.now(), last ? last.created + 1 : 0);
    const message = /** @type {Message} */ ({ id: newId(), conv: this.conv.id, parent, created, text: "", picked: null, ...m });
    this.byId.set(message.id, message);
    this.pick(message);
    return message;
  }

  /** Shows a message among its siblings. @param {Message} m */
  pick(m) {
    if (m.parent === null) this.conv.picked = m.id;
    else this.byId.get(m.parent).picked = m.id;
  }

  /** The message before or behind among the siblings, or undefined. @param {Message} m @param {number} step */
  sibling(m, step) {
    const all = this.children(m.parent);
    return all[all.findIndex((s) => s.id === m.id) + step];
  }
}
