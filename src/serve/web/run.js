/* One answer being written: the request, its stream, its end. */
import { send, ApiError } from "./api.js";
import { Writing } from "./deltas.js";
import { readEvents } from "./sse.js";

/** @typedef {import("./tree.js").Message} Message */

export class Run {
  /**
   * @param {Message} message the answer, filled while the stream runs
   * @param {Object} body the request's
   * @param {{changed: (r: Run) => void, ended: (r: Run) => void}} told
   */
  constructor(message, body, told) {
    this.message = message;
    this.told = told;
    this.abort = new AbortController();
    this.writing = new Writing(message);
    this.finished = this.#go(body);
  }

  stop() {
    this.abort.abort();
  }

  async #go(body) {
    const m = this.message;
    delete m.finish;
    delete m.error;
    try {
      const reply = await send("/v1/chat/completions", body, this.abort.signal);
      await readEvents(reply.body, (data) => {
        this.writing.take(data);
        this.told.changed(this);
      });
      if (!this.writing.done) m.finish = "dropped";
    } catch (e) {
      this.#failed(e);
    }
    this.told.ended(this);
  }

  #failed(e) {
    const m = this.message;
    if (this.abort.signal.aborted) m.finish = "stopped";
    else if (e instanceof ApiError || e.told) (m.finish = "error"), (m.error = e.message);
    else m.finish = "dropped";
  }
}
