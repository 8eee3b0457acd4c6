/* Starts the page and ties its parts together. */
import { forgetKey, hasKey, send, whenKeyIsNeeded } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { askKey, help } from "./dialogs.js";
import { byId, icon } from "./dom.js";
import { listen } from "./keys.js";
import { startLooks } from "./looks.js";
import { Sidebar } from "./sidebar.js";
import * as store from "./store.js";
import { t } from "./texts.js";

for (const e of document.querySelectorAll("[data-icon]")) e.prepend(icon(/** @type {any} */ (e).dataset.icon));

whenKeyIsNeeded(askKey);
const chat = new Chat({ listChanged: () => sidebar.refresh(), stateChanged: () => composer.update() });
const sidebar = new Sidebar(chat);
const composer = new Composer(chat);
/** Made when somebody looks at it first. @type {import("./machine.js").Machine|null} */
let machine = null;

startLooks(() => {
  sidebar.refresh();
  chat.renderAnew();
  composer.update();
  machine?.renderAnew();
});

/* ---- the two views ---- */

/** @param {"chat"|"machine"} name */
function showView(name) {
  for (const view of ["chat", "machine"]) {
    byId(view).hidden = view !== name;
    byId("tab-" + view).setAttribute("aria-selected", String(view === name));
    byId("tab-" + view).tabIndex = view === name ? 0 : -1;
  }
  document.body.dataset.view = name;
  watchMachine(name === "machine");
}

async function watchMachine(on) {
  if (on && !machine) machine = new (await import("./machine.js")).Machine(byId("machine"));
  machine?.watch(!byId("machine").hidden);
}

const otherView = () => (byId("chat").hidden ? "chat" : "machine");
for (const view of /** @type {const} */ (["chat", "machine"])) byId("tab-" + view).addEventListener("click", () => showView(view));
byId("tabs").addEventListener("keydown", (e) => {
  if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
  const view = otherView();
  showView(view);
  byId("tab-" + view).focus();
});

/* ---- settings, help, keys ---- */

/** Of sampling, as the server says them. @type {Object} */
let defaults = {};

async function openSettings() {
  const { editSettings } = await import("./settings.js");
  const present = askModel().then(() => defaults); // the server may have another model by now
  const settings = await editSettings(chat.conv.settings || {}, defaults, present);
  if (settings) chat.setSettings(settings);
}
const openHelp = () => help(hasKey() ? { forget: forgetKey } : {});
byId("settings").addEventListener("click", openSettings);
byId("keys").addEventListener("click", openHelp);

listen(
  {
    KeyN: () => (showView("chat"), chat.startNew(), byId("ask").focus()),
    ArrowUp: () => sidebar.step(-1),
    ArrowDown: () => sidebar.step(1),
    Comma: () => chat.branchLast(-1),
    Period: () => chat.branchLast(1),
    KeyR: () => chat.againLast(),
    KeyE: () => chat.editLast(),
    KeyT: () => composer.toggleThinking(),
    KeyS: openSettings,
    KeyL: () => chat.conv.title && sidebar.rename(),
    KeyM: () => showView(otherView()),
    KeyH: openHelp,
  },
  () => {
    if (sidebar.isOpen) return sidebar.close(), true;
    if (chat.running) return chat.stop(), true;
    return false;
  },
);

/* ---- start ---- */

async function askModel() {
  try {
    const [{ id, default_sampling }] = (await (await send("/v1/models")).json()).data;
    const isNew = chat.model !== id;
    defaults = default_sampling || {};
    chat.model = id;
    if (isNew && !chat.tree.byId.size) chat.render();
  } catch {
    /* the first question will tell what is wrong */
  }
}

const keeps = await store.open();
byId("volatile").hidden = keeps;
byId("volatile").textContent = t("noStore");
chat.render();
await sidebar.refresh();
if (location.hash === "#machine") showView("machine");
if (matchMedia("(hover: hover)").matches) byId("ask").focus();
document.body.dataset.ready = "yes";
askModel();
