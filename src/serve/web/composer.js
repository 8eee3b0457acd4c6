/* The field for the next message, and what stands around it. */
import { byId } from "./dom.js";
import { t } from "./texts.js";

/** @typedef {import("./chat.js").Chat} Chat */

export class Composer {
  /** @param {Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.area = /** @type {HTMLTextAreaElement} */ (byId("ask"));
    this.button = byId("send");
    this.think = byId("think");
    byId("composer").addEventListener("submit", (e) => (e.preventDefault(), this.#press()));
    this.area.addEventListener("input", () => this.#look());
    this.area.addEventListener("keydown", (e) => this.#key(e));
    this.think.addEventListener("click", () => this.toggleThinking());
  }

  #key(e) {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing || e.altKey) return;
    e.preventDefault();
    if (!this.chat.running) this.#press();
  }

  /** The button: sends, or stops what is written. */
  #press() {
    if (this.chat.running) return this.chat.stop();
    const text = this.area.value.trim();
    if (!text) return;
    this.area.value = "";
    this.chat.say(text);
    this.#look();
  }

  toggleThinking() {
    this.chat.setSettings({ ...this.chat.conv.settings, thinking: this.chat.conv.settings.thinking === false });
  }

  #look() {
    this.area.style.height = "auto";
    this.area.style.height = Math.min(this.area.scrollHeight, window.innerHeight * 0.4) + "px";
    /** @type {HTMLButtonElement} */ (this.button).disabled = !this.chat.running && !this.area.value.trim();
  }

  /** Brings everything to the chat's state. */
  update() {
    const running = Boolean(this.chat.running), label = t(running ? "stop" : "send");
    this.button.classList.toggle("stops", running);
    this.button.setAttribute("aria-label", label);
    this.button.title = label;
    this.think.setAttribute("aria-pressed", String(this.chat.conv.settings?.thinking !== false));
    byId("settings").classList.toggle("set", Boolean(this.chat.conv.settings?.system));
    this.#look();
  }
}
