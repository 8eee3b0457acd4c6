/* Small settings in localStorage, which may be forbidden: then they last as long as the page. */

const memory = new Map();

/** @param {string} name @param {any} otherwise */
export function recall(name, otherwise) {
  try {
    const text = localStorage.getItem("lily." + name);
    if (text === null) return memory.has(name) ? memory.get(name) : otherwise;
    return typeof otherwise === "string" ? text : JSON.parse(text);
  } catch {
    return memory.has(name) ? memory.get(name) : otherwise;
  }
}

/** @param {string} name @param {any} value strings as they are, others as JSON; null forgets */
export function remember(name, value) {
  memory.set(name, value);
  try {
    if (value === null) localStorage.removeItem("lily." + name);
    else localStorage.setItem("lily." + name, typeof value === "string" ? value : JSON.stringify(value));
  } catch {
    /* kept in memory */
  }
}
