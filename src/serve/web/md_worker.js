/*
 * The worker that parses Markdown, so that no text however odd holds the page up. Messages
 * in: {id, text}, {id, end: true}, {id, drop: true}; out: {id, ops} for each of the first two, see split.js.
 */
import "./marked.js";
import { makeParser } from "./parser.js";
import { Splitter } from "./split.js";

const parser = makeParser(globalThis.marked);
/** @type {Map<number, Splitter>} */
const splitters = new Map();

onmessage = ({ data }) => {
  const { id, text, end, drop } = data;
  if (drop) return void splitters.delete(id);
  const s = splitters.get(id) || new Splitter(parser);
  splitters.set(id, s);
  const ops = end ? s.end() : s.push(text);
  if (end) splitters.delete(id);
  postMessage({ id, ops });
};
