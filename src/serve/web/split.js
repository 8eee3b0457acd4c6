/*
 * Markdown that grows, into blocks: what is finished is told once, and only the last, open block is told again. Fenced code at
 * the margin is told line by line. No block gets longer than LONGEST for the parser, whatever the model writes: lists, tables
 * and paragraphs are cut where it shows least. Runs in the worker; needs a parser in the form of marked.
 */

const LONGEST = 3000, HARDEST = 12000;
const FENCE = /^(`{3,}|~{3,})([^\n`]*)\n/m;
const MAYBE_FENCE = /^(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^`\n]*)$/;

/**
 * What to do, in order:
 * {op: "block", html, more}   a finished block takes the open one's place; more: it goes on with the table before it
 * {op: "open", html, more}    the open block, anew
 * {op: "code", lang}          a block of code begins
 * {op: "lines", text}         whole lines for it
 * {op: "rest", text}          its last, open line, anew
 * {op: "end"}                 it ends
 * @typedef {{op: string, html?: string, lang?: string, text?: string, more?: boolean}} Op
 */
export class Splitter {
  /** @param {{lex: (s: string) => any[], html: (tokens: any[]) => string}} parser */
  constructor(parser) {
    this.parser = parser;
    this.tail = "";
    this.fence = null; // the closing line of the code that is open
    this.head = ""; // the header of the table that was cut
    this.ops = [];
  }

  /** @param {string} text @returns {Op[]} */
  push(text) {
    this.ops = [];
    this.tail += text.replace(/\r\n?/g, "\n");
    while (this.fence ? this.#code() : this.#beforeFence());
    if (!this.fence) this.#open(false);
    return this.ops;
  }

  /** The text is at its end. @returns {Op[]} */
  end() {
    this.ops = [];
    if (this.fence) {
      if (this.tail) this.#say("lines", { text: this.tail });
      this.#say("end");
    } else this.#open(true);
    this.tail = this.head = "";
    this.fence = null;
    return this.ops;
  }

  #say(op, more = {}) {
    this.ops.push({ op, ...more });
  }

  /** Code: lines up to the closing one. True: something else follows. */
  #code() {
    const end = this.tail.lastIndexOf("\n") + 1, lines = this.tail.slice(0, end);
    const close = this.fence.exec(lines);
    if (close) {
      if (close.index) this.#say("lines", { text: lines.slice(0, close.index) });
      this.#say("end");
      this.tail = this.tail.slice(close.index + close[0].length);
      this.fence = null;
      return true;
    }
    if (lines) this.#say("lines", { text: lines });
    this.tail = this.tail.slice(end);
    if (!/^ {0,3}[`~]*$/.test(this.tail)) this.#say("rest", { text: this.tail });
    return false;
  }

  /** Everything before a fence at the margin is finished by it. */
  #beforeFence() {
    const found = FENCE.exec(this.tail);
    if (!found) return false;
    this.#finish(this.tail.slice(0, found.index));
    this.tail = this.tail.slice(found.index + found[0].length);
    this.#say("code", { lang: found[2].trim().split(/\s/)[0] });
    this.fence = new RegExp("^ {0,3}" + found[1][0] + "{" + found[1].length + ",}[ \\t]*\\n", "m");
    return true;
  }

  #block(op, tokens) {
    const html = this.parser.html(tokens);
    if (html) this.#say(op, { html, more: this.head !== "" && tokens[0]?.type === "table" });
  }

  #tokens(text) {
    return this.parser.lex(this.head + text.replace(/^( *)(\t+)/gm, (_, spaces, tabs) => spaces + "    ".repeat(tabs.length)));
  }

  /** Text that will not change any more. */
  #finish(text) {
    while (text.length > HARDEST) {
      const cut = cutOf(text.slice(0, LONGEST));
      this.#each(this.#tokens(text.slice(0, cut)));
      text = text.slice(cut);
    }
    this.#each(this.#tokens(text));
  }

  /** One op for each token. */
  #each(tokens) {
    for (const t of tokens) {
      if (t.type !== "space" && t.type !== "def") this.#block("block", [t]);
      if (t.type !== "space") this.head = "";
    }
  }

  /** The tail: all but its last block is finished, as far as its lines are complete; the rest is open. */
  #open(all) {
    if (all) return this.#finish(this.tail);
    const end = this.tail.lastIndexOf("\n") + 1, line = this.tail.slice(end);
    let text = this.tail.slice(0, end), before;
    do {
      before = text;
      text = this.#step(text);
    } while (text !== before);
    if (line.length > LONGEST) {
      this.tail = line.slice(LONGEST);
      return this.#finish(text + line.slice(0, LONGEST));
    }
    this.tail = text + line;
    const tokens = this.#tokens(MAYBE_FENCE.test(line) ? text : this.tail);
    if (tokens.length) this.#block("open", tokens);
  }

  /** Finishes what is finished of whole lines; returns the open rest. */
  #step(text) {
    // What arrives at once may be very long.
    const part = text.length > HARDEST ? text.slice(0, cutOf(text.slice(0, HARDEST))) : text;
    const tokens = this.#tokens(part);
    let n = tokens.length;
    while (n && tokens[n - 1].type === "space") n--;
    if (n > 1) {
      this.#each(tokens.slice(0, n - 1));
      return raw(tokens.slice(n - 1)) + text.slice(part.length);
    }
    if (n === 1 && part.length > LONGEST) return this.#force(tokens[0], part) + text.slice(part.length);
    return text;
  }

  /** One block that is too long: its beginning is finished, the rest goes on. */
  #force(token, text) {
    if (token.type === "list" && token.items.length > 1) {
      this.#block("block", [{ ...token, items: token.items.slice(0, -1) }]);
      return token.items.at(-1).raw + text.slice(token.raw.length);
    }
    if (token.type === "list" && text.length <= HARDEST) return text;
    const head = token.type === "table" ? this.head || text.split("\n", 2).join("\n") + "\n" : "";
    const cut = cutOf(text.slice(0, Math.max(LONGEST, text.length - 200)));
    this.#block("block", this.#tokens(text.slice(0, cut)));
    this.head = head;
    return text.slice(cut);
  }
}

const raw = (tokens) => tokens.map((t) => t.raw).join("");

/** Where a long text is cut: behind a line, else a sentence, else a word. */
function cutOf(text) {
  for (const mark of ["\n", ". ", " "]) {
    const at = text.lastIndexOf(mark);
    if (at > text.length / 4) return at + mark.length;
  }
  return text.length;
}
