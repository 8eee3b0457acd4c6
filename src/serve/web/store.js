/* Conversations in IndexedDB. Where a browser forbids it, they last as long as the page. */

/** @typedef {import("./tree.js").Message} Message @typedef {import("./tree.js").Conversation} Conversation */

/** @type {IDBDatabase|null} */
let db = null;
const memory = { conversations: new Map(), messages: new Map() };

/** @param {IDBRequest} r @returns {Promise<any>} */
const done = (r) => new Promise((ok, fail) => ((r.onsuccess = () => ok(r.result)), (r.onerror = () => fail(r.error))));
/** @param {IDBTransaction} t @returns {Promise<void>} */
const finished = (t) => new Promise((ok, fail) => ((t.oncomplete = () => ok()), (t.onerror = t.onabort = () => fail(t.error))));

function create(e) {
  const made = e.target.result;
  made.createObjectStore("conversations", { keyPath: "id" });
  made.createObjectStore("messages", { keyPath: "id" }).createIndex("conv", "conv");
}

/** Opens the store. @returns {Promise<boolean>} whether it outlasts the page */
export async function open() {
  try {
    const r = indexedDB.open("lily", 1);
    r.onupgradeneeded = create;
    db = await done(r);
    db.onversionchange = () => db.close();
  } catch {
    db = null;
  }
  return db !== null;
}

/** All conversations, the last used first. @returns {Promise<Conversation[]>} */
export async function list() {
  const all = db ? await done(db.transaction("conversations").objectStore("conversations").getAll()) : [...memory.conversations.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

/** @param {string} conv @returns {Promise<Message[]>} */
export async function messages(conv) {
  if (!db) return [...memory.messages.values()].filter((m) => m.conv === conv);
  return done(db.transaction("messages").objectStore("messages").index("conv").getAll(conv));
}

/** Writes conversations and messages in one step. @param {Conversation[]} convs @param {Message[]} [msgs] */
export async function put(convs, msgs = []) {
  if (!db) {
    for (const c of convs) memory.conversations.set(c.id, c);
    for (const m of msgs) memory.messages.set(m.id, m);
    return;
  }
  const t = db.transaction(["conversations", "messages"], "readwrite");
  for (const c of convs) t.objectStore("conversations").put(c);
  for (const m of msgs) t.objectStore("messages").put(m);
  await finished(t);
}

/** @param {string} conv */
export async function remove(conv) {
  const all = await messages(conv);
  if (!db) {
    memory.conversations.delete(conv);
    for (const m of all) memory.messages.delete(m.id);
    return;
  }
  const t = db.transaction(["conversations", "messages"], "readwrite");
  t.objectStore("conversations").delete(conv);
  for (const m of all) t.objectStore("messages").delete(m.id);
  await finished(t);
}
