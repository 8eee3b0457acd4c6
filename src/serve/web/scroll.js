/* Keeps the end of the conversation in sight while it grows, as long as the reader is there. */

const NEAR = 80; // pixels

export class Scroll {
  /** @param {HTMLElement} box @param {HTMLElement} button leads to the end, when it is out of sight */
  constructor(box, button) {
    this.box = box;
    this.button = button;
    this.atEnd = true;
    this.still = true; // nothing is said yet: the beginning stays in sight
    box.addEventListener("scroll", () => this.#look(), { passive: true });
    // Whoever scrolls up wants to stay there, also when the text grows in the same moment.
    box.addEventListener("wheel", (e) => e.deltaY < 0 && (this.atEnd = false), { passive: true });
    button.addEventListener("click", () => this.toEnd(true));
    // Told behind the layout of a frame, so that nothing is laid out twice.
    const grown = new ResizeObserver(() => this.follow());
    grown.observe(box);
    grown.observe(box.firstElementChild);
  }

  #look() {
    const left = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
    this.atEnd = left < NEAR;
    this.button.hidden = left < 2 * NEAR;
  }

  /** Something has grown. */
  follow() {
    if (this.atEnd && !this.still) this.toEnd(false);
  }

  /** And there, until toEnd. */
  toStart() {
    this.still = true;
    this.box.scrollTop = 0;
    this.#look();
  }

  /** @param {boolean} stay and from now on */
  toEnd(stay) {
    if (stay) this.atEnd = true;
    this.still = false;
    this.box.scrollTop = 1e9;
    this.button.hidden = true;
  }

  /** Moves so that an element stands where another one stood. @param {HTMLElement|undefined} e @param {number|undefined} top */
  keep(e, top) {
    if (e && top !== undefined) this.box.scrollTop += e.getBoundingClientRect().top - top;
    this.#look();
  }
}
