/* Server-sent events, from bytes that arrive in any pieces. */

/** Splits text into the data of events. */
export class EventParser {
  constructor() {
    this.rest = "";
  }

  /** @param {string} text @returns {string[]} the data of the events that are complete */
  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    const out = [];
    for (const line of lines) if (line.startsWith("data: ")) out.push(line.slice(6));
    return out;
  }
}

const SLICE_MS = 8;
/** Lets the page do what waits: a task of its own, so that no stream however fast can hold the page up. */
function breathe() {
  return new Promise((ok) => {
    const c = new MessageChannel();
    c.port1.onmessage = () => ok();
    c.port2.postMessage(0);
  });
}

/**
 * Reads a stream to its end, handing each event's data over, in slices of some milliseconds.
 * @param {ReadableStream<Uint8Array>} stream @param {(data: string) => void} take
 */
export async function readEvents(stream, take) {
  const reader = stream.getReader(), decoder = new TextDecoder(), parser = new EventParser();
  let began = performance.now();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const data of parser.push(decoder.decode(value, { stream: true }))) {
      take(data);
      if (performance.now() - began < SLICE_MS) continue;
      await breathe();
      began = performance.now();
    }
  }
}
