/* Elements from descriptions, and icons. */

/**
 * Makes an element. Properties: `class`, `text`, `on` (event handlers by name), `data`; everything else is an attribute
 * (true: empty, false or null: absent).
 * @param {string} name
 * @param {Object} [props]
 * @param {...(Node|string|null|undefined|false)} children
 * @returns {HTMLElement}
 */
export function el(name, props = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key === "text") e.textContent = value;
    else if (key === "class") e.className = value;
    else if (key === "on") for (const [type, f] of Object.entries(value)) e.addEventListener(type, f);
    else if (key === "data") Object.assign(e.dataset, value);
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const paths = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 8h16M4 16h11",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V6M6 11.500 12 5.500l6 6",
  stop: "M7.500 7.500h9v9h-9z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.500l4.500 4.500L19 7.500",
  edit: "M5 19l1-4L16.500 4.500l3 3L9 18zM14.500 6.500l3 3",
  again: "M19 12a7 7 0 1 1-2-4.900M17.500 3v4.500H13",
  left: "M14.500 6l-6 6 6 6",
  right: "M9.500 6l6 6-6 6",
  down: "M6 9.500l6 6 6-6",
  trash: "M5 7h14M10 7V4.500h4V7M7 7l.8 12.500h8.400L17 7M10.300 10.500v5.500M13.700 10.500v5.500",
  save: "M12 4v11M7.500 11l4.500 4.500 4.500-4.500M5 19.500h14",
  load: "M12 15.500V4.500M7.500 9L12 4.500 16.500 9M5 19.500h14",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M13 8a2 2 0 1 0 4 0 2 2 0 0 0-4 0M7 16a2 2 0 1 0 4 0 2 2 0 0 0-4 0",
  keys: "M3.500 7h17v10h-17zM7 10.500h.01M10.300 10.500h.01M13.700 10.500h.01M17 10.500h.01M8 14h8",
  think: "M9.500 18h5M10.500 20.500h3M12 3.500a6 6 0 0 0-3.500 10.900c.6.500 1 1.200 1 2V16h5v.400c0-.8.400-1.500 1-2A6 6 0 0 0 12 3.500z",
  tool: "M14.500 6.500a4 4 0 0 1 5-1l-2.800 2.800 1 1.900 1.900 1 2.400-2.300a4 4 0 0 1-5.500 4.600L9 20l-3.500-3.500 6.800-7.200a4 4 0 0 1 2.200-2.800z",
  warn: "M12 4.500 3.500 19.500h17zM12 10v4.500M12 17.200h.01",
  globe: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M4 12h16M12 4c-5 5-5 11 0 16 5-5 5-11 0-16z",
};
const SVG = "http://www.w3.org/2000/svg";

/** @param {keyof typeof paths} name @returns {SVGElement} */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", paths[name]);
  svg.append(path);
  return svg;
}

/**
 * A button that is an icon, named for screen readers and by its tooltip.
 * @param {keyof typeof paths} name @param {string} label @param {(e: Event) => void} click @param {string} [more] classes
 */
export function iconButton(name, label, click, more = "") {
  return el("button", { type: "button", class: "tool " + more, title: label, "aria-label": label, on: { click } }, icon(name));
}

/** Tells screen readers. @param {string} text */
export function announce(text) {
  byId("status").textContent = text;
}
