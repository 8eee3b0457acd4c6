/* From the chunks of a stream to the message that they write, and its numbers. No DOM. */

/** @typedef {import("./tree.js").Message} Message */

/**
 * @typedef {Object} Numbers
 * @property {number} [first_ms]   from asking to the first token
 * @property {number} [speed]      tokens a second
 * @property {number} [tokens]     of the answer, thinking included
 * @property {number} [prompt]     tokens of the prompt
 * @property {number} [reused]     of them, taken from the cache
 * @property {any} [why]           why not more: {why: "new"|"differs"|"dropped"|"off", message, was, is}, or a text
 * @property {string} [model]
 */

/** One answer while it is written. */
export class Writing {
  /** @param {Message} message @param {() => number} now */
  constructor(message, now = () => performance.now()) {
    this.message = Object.assign(message, { text: "", thought: "", calls: [], numbers: {} });
    this.now = now;
    this.asked = now();
    this.pieces = 0;
    this.first = 0;
    this.done = false;
    /** @type {{state: string, position: number, done: number, total: number}|null} */
    this.progress = null;
  }

  /** Takes the data of one event. @param {string} data */
  take(data) {
    if (data === "[DONE]") {
      this.done = true;
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw Object.assign(new Error(chunk.error.message || "error"), { told: true });
    const choice = chunk.choices?.[0];
    if (chunk.model) this.message.numbers.model = chunk.model;
    if (choice) this.#delta(choice.delta || {});
    const vendor = chunk.lily || choice?.lily || choice?.delta?.lily;
    if (vendor?.state) this.progress = vendor;
    else if (vendor) this.#vendor(vendor);
    if (chunk.usage) this.#usage(chunk.usage);
    if (choice?.finish_reason) this.message.finish = choice.finish_reason;
  }

  #delta(d) {
    if (d.reasoning_content) {
      this.#token();
      this.message.thought += d.reasoning_content;
      this.message.thought_ms = this.now() - this.first;
    }
    if (d.content) {
      this.#token();
      this.message.text += d.content;
    }
    for (const c of d.tool_calls || []) this.#call(c);
  }

  #call(c) {
    this.#token();
    const calls = this.message.calls;
    const at = calls[c.index || 0] || (calls[c.index || 0] = { id: "", name: "", args: "" });
    if (c.id) at.id = c.id;
    if (c.function?.name) at.name += c.function.name;
    if (c.function?.arguments) at.args += c.function.arguments;
  }

  #token() {
    const n = this.message.numbers;
    this.progress = null;
    if (this.pieces++ === 0) {
      this.first = this.now();
      n.first_ms = this.first - this.asked;
    }
    n.tokens = this.pieces;
    const seconds = (this.now() - this.first) / 1000;
    if (seconds > 0.2) n.speed = (this.pieces - 1) / seconds;
  }

  #usage(u) {
    const n = this.message.numbers;
    n.tokens = u.completion_tokens;
    n.prompt = u.prompt_tokens;
    n.reused = u.prompt_tokens_details?.cached_tokens ?? 0;
  }

  #vendor(v) {
    const n = this.message.numbers;
    if (v.timings?.decode_tok_s > 0) n.speed = v.timings.decode_tok_s;
    if (v.cache) {
      n.reused = v.cache.reused;
      n.prompt = v.cache.reused + v.cache.computed;
      n.why = v.cache.reason;
    }
    if (v.finish_detail) n.detail = v.finish_detail;
    if (v.seed !== undefined) n.seed = String(v.seed);
  }
}
