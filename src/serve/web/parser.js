/* marked, as this page wants it: HTML is no markup but text, and nothing is fetched because an answer says so. */

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escape = (s) => String(s).replace(/[&<>"']/g, (c) => escapes[c]);
const never = () => undefined;

const extension = {
  tokenizer: {
    // Tags are not recognised, so that they stay text.
    html: never,
    tag: never,
    // An underlined heading is one line: marked takes all lines before, lists and headings too. false: marked's own way.
    lheading: (src) => (/^[^\n]+\n {0,3}(?:=+|-+)[ \t]*(?:\n|$)/.test(src) ? false : undefined),
  },
  renderer: {
    html: escape,
    // A picture is a link to it.
    image: (href, title, text) => '<a href="' + escape(href || "") + '">' + (text || escape(href || "")) + "</a>",
    checkbox: (checked) => (checked ? "☑ " : "☐ "),
  },
};

/** @param {any} marked @returns {{lex: (text: string) => any[], html: (tokens: any[]) => string}} */
export function makeParser(marked) {
  marked.use(extension);
  const options = { ...marked.defaults, headerIds: false, mangle: false, gfm: true, breaks: false };
  return { lex: (text) => marked.Lexer.lex(text, options), html: (tokens) => marked.Parser.parse(tokens, options) };
}
