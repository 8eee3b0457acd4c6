/* The page's keyboard shortcuts. All are with Alt, so that no letter is taken from anybody's typing. */

/** @param {Record<string, () => void>} deeds by KeyboardEvent.code @param {() => boolean} escape whether it did something */
export function listen(deeds, escape) {
  document.addEventListener("keydown", (e) => {
    if (document.querySelector("dialog[open]")) return;
    if (e.key === "Escape" && escape()) e.preventDefault();
    if (!e.altKey || e.ctrlKey || e.metaKey || e.shiftKey || !deeds[e.code]) return;
    e.preventDefault();
    deeds[e.code]();
  });
}
