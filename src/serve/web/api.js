/* Requests to this server. The API key is asked for when the server wants one, kept, and sent from then on. */
import { recall, remember } from "./local.js";
import { t } from "./texts.js";

export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @type {((wrong: boolean) => Promise<string|null>)|null} */
let ask = null;
/** @type {Promise<string|null>|null} one question, however many requests wait for it */
let asking = null;

/** @param {(wrong: boolean) => Promise<string|null>} f resolves to a key, or null when the person does not say */
export function whenKeyIsNeeded(f) {
  ask = f;
}

export const hasKey = () => recall("key", "") !== "";
export const forgetKey = () => remember("key", null);

async function newKey(tried) {
  if (recall("key", "") !== tried) return true; // somebody else has asked meanwhile
  asking = asking || ask(tried !== "");
  const key = await asking;
  asking = null;
  if (key) remember("key", key);
  return Boolean(key);
}

async function errorOf(reply) {
  let message = reply.status + " " + reply.statusText;
  try {
    message = (await reply.json()).error.message || message;
  } catch {
    /* no JSON: the status has to do */
  }
  return new ApiError(reply.status, message);
}

/** Without a reply fetch fails with words of the browser's own. */
async function reach(path, request) {
  try {
    return await fetch(path, request);
  } catch (e) {
    if (request.signal?.aborted) throw e;
    throw new ApiError(0, t("unreachable"));
  }
}

/**
 * Sends; a body makes it a POST of JSON. Throws ApiError for what the server refuses.
 * @param {string} path @param {Object} [body] @param {AbortSignal} [signal] @returns {Promise<Response>}
 */
export async function send(path, body, signal) {
  for (;;) {
    const key = recall("key", "");
    const headers = key ? { Authorization: "Bearer " + key } : {};
    if (body) headers["Content-Type"] = "application/json";
    const reply = await reach(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
    if (reply.ok) return reply;
    if (reply.status !== 401 || !ask || !(await newKey(key))) throw await errorOf(reply);
  }
}
