/* Every text of the page, in English and Portuguese. {x} is filled in; |-parts are for one and for more. */

/** @type {Record<string, [string, string]>} */
export const table = {
  skip: ["Skip to the message", "Ir para a mensagem"],
  conversations: ["Conversations", "Conversas"],
  newChat: ["New conversation", "Nova conversa"],
  untitled: ["New conversation", "Nova conversa"],
  noChats: ["What you talk about stays in this browser.", "O que você conversa fica neste navegador."],
  noStore: ["This browser keeps nothing: conversations end with the page.", "Este navegador não guarda nada: as conversas acabam com a página."],
  today: ["Today", "Hoje"],
  yesterday: ["Yesterday", "Ontem"],
  week: ["Last seven days", "Últimos sete dias"],
  earlier: ["Earlier", "Antes"],
  rename: ["Rename", "Renomear"],
  remove: ["Delete", "Apagar"],
  removeAsk: ["Delete “{x}”?", "Apagar “{x}”?"],
  removeSure: ["It is gone for good: this browser has the only copy.", "Não dá para recuperar: só este navegador tem a cópia."],
  exportAll: ["Export all as a file", "Exportar tudo em um arquivo"],
  importAll: ["Import from a file", "Importar de um arquivo"],
  imported: ["{n} conversation imported|{n} conversations imported", "{n} conversa importada|{n} conversas importadas"],
  importBad: ["This is no file of exported conversations.", "Este não é um arquivo de conversas exportadas."],
  theme: ["Theme: {x}", "Tema: {x}"],
  themeAuto: ["as the system", "do sistema"],
  themeLight: ["light", "claro"],
  themeDark: ["dark", "escuro"],
  language: ["Português", "English"],
  languageLabel: ["Mudar para português", "Switch to English"],
  keys: ["Keyboard and more", "Teclado e mais"],
  chat: ["Chat", "Conversa"],
  machine: ["Machine", "Máquina"],
  views: ["Views", "Visões"],
  messages: ["Messages", "Mensagens"],
  ask: ["Message", "Mensagem"],
  askHere: ["Ask something…", "Pergunte algo…"],
  send: ["Send", "Enviar"],
  stop: ["Stop", "Parar"],
  toEnd: ["To the end", "Para o fim"],
  settings: ["Settings of this conversation", "Ajustes desta conversa"],
  thinking: ["Thinking", "Pensar"],
  thinkingOn: ["The model thinks before it answers", "O modelo pensa antes de responder"],
  greeting: ["What shall we think about?", "Em que vamos pensar?"],
  greetingSub: ["Answers come from the model {model}, on this machine. Nothing you write leaves it.", "As respostas vêm do modelo {model}, nesta máquina. Nada do que você escreve sai dela."],
  greetingAlone: ["Answers come from this machine. Nothing you write leaves it.", "As respostas vêm desta máquina. Nada do que você escreve sai dela."],
  try1: ["Tell me a short story about a fox and a lantern.", "Conte uma história curta sobre uma raposa e uma lanterna."],
  try2: ["Explain what a KV cache is, in three sentences.", "Explique o que é um cache KV, em três frases."],
  try3: ["Write a shell command that finds the ten largest files here.", "Escreva um comando de shell que ache os dez maiores arquivos daqui."],
  noMarkdown: ["This build shows answers as plain text: it was made without libjs-marked and node-dompurify.", "Esta versão mostra as respostas como texto simples: foi feita sem libjs-marked e node-dompurify."],
  you: ["You", "Você"],
  it: ["Answer", "Resposta"],
  copy: ["Copy", "Copiar"],
  copied: ["Copied", "Copiado"],
  copyCode: ["Copy this code", "Copiar este código"],
  copyText: ["Copy the text", "Copiar o texto"],
  code: ["code", "código"],
  edit: ["Edit and ask again", "Editar e perguntar de novo"],
  editLabel: ["The edited message", "A mensagem editada"],
  cancel: ["Cancel", "Cancelar"],
  again: ["Answer again", "Responder de novo"],
  before: ["The version before", "A versão anterior"],
  behind: ["The next version", "A próxima versão"],
  version: ["{i} of {n}", "{i} de {n}"],
  isThinking: ["Thinking · {s}", "Pensando · {s}"],
  thought: ["Thought for {s}", "Pensou por {s}"],
  called: ["Calls {x}", "Chama {x}"],
  waiting: ["Waiting for the first word…", "Esperando a primeira palavra…"],
  queued: ["In the queue: {n} before you", "Na fila: {n} antes de você"],
  queuedNext: ["In the queue: you are next", "Na fila: você é o próximo"],
  reading: ["Reading the conversation: {a} of {b} tokens", "Lendo a conversa: {a} de {b} tokens"],
  answered: ["The answer is there.", "A resposta está pronta."],
  stopped: ["Stopped here.", "Parou aqui."],
  dropped: ["The connection broke before the answer was complete.", "A conexão caiu antes do fim da resposta."],
  unreachable: ["The server cannot be reached.", "O servidor não responde."],
  cut: ["The limit of tokens ends it here.", "O limite de tokens acabou aqui."],
  retry: ["Try again", "Tentar de novo"],
  nFirst: ["{x} to first token", "{x} até o primeiro token"],
  nSpeed: ["{x} tok/s", "{x} tok/s"],
  nTokens: ["{n} token|{n} tokens", "{n} token|{n} tokens"],
  nReused: ["{a} of {b} prompt tokens cached", "{a} de {b} tokens do prompt em cache"],
  nWhy: ["Why not more?", "Por que não mais?"],
  nGrid: ["States are kept every 64 tokens; what comes behind the last one is read again.", "Os estados são guardados a cada 64 tokens; o que vem depois do último é lido de novo."],
  nNew: ["No recent prompt begins like this one.", "Nenhum prompt recente começa como este."],
  nDropped: ["The saved state was given up for room, or was not kept.", "O estado salvo deu lugar a outros, ou não foi guardado."],
  nOff: ["This server keeps no states.", "Este servidor não guarda estados."],
  nDiffersHead: ["The beginning, before the first message, differs from what was read before:", "O começo, antes da primeira mensagem, difere do que foi lido antes:"],
  nDiffers: ["Message {i} differs from what was read before:", "A mensagem {i} difere do que foi lido antes:"],
  nWas: ["before", "antes"],
  nIs: ["now", "agora"],
  system: ["System prompt", "Instruções do sistema"],
  systemHint: ["Who the model is and how it should answer", "Quem é o modelo e como ele deve responder"],
  budget: ["At most so many tokens of thinking", "No máximo tantos tokens de pensamento"],
  noLimit: ["no limit", "sem limite"],
  samplingHead: ["How words are chosen", "Como as palavras são escolhidas"],
  samplingSub: ["An empty field means the grey value, which is the model's own.", "Um campo vazio significa o valor em cinza, que é o do próprio modelo."],
  temperature: ["Temperature", "Temperatura"],
  top_p: ["Top-p", "Top-p"],
  top_k: ["Top-k", "Top-k"],
  min_p: ["Min-p", "Min-p"],
  presence_penalty: ["Presence penalty", "Penalidade de presença"],
  frequency_penalty: ["Frequency penalty", "Penalidade de frequência"],
  repetition_penalty: ["Repetition penalty", "Penalidade de repetição"],
  max_tokens: ["Longest answer, in tokens", "Resposta mais longa, em tokens"],
  seed: ["Seed", "Semente"],
  tools: ["Tools, as JSON", "Ferramentas, em JSON"],
  toolsHint: ["A list in OpenAI's form. Calls are shown, not made.", "Uma lista no formato da OpenAI. As chamadas são mostradas, não executadas."],
  toolsBad: ["This is no JSON list.", "Isto não é uma lista JSON."],
  save: ["Save", "Salvar"],
  close: ["Close", "Fechar"],
  forgetKey: ["Forget the API key", "Esquecer a chave da API"],
  keyTitle: ["This server wants an API key", "Este servidor pede uma chave de API"],
  keyWrong: ["That key was not accepted.", "Essa chave não foi aceita."],
  keyLabel: ["API key", "Chave da API"],
  keyHint: ["It is kept in this browser and sent only to this server.", "Ela fica neste navegador e só é enviada a este servidor."],
  kSend: ["Send the message", "Enviar a mensagem"],
  kLine: ["New line", "Nova linha"],
  kStop: ["Stop the answer, close what is open", "Parar a resposta, fechar o que está aberto"],
  kNew: ["New conversation", "Nova conversa"],
  kList: ["Conversation before, after", "Conversa anterior, seguinte"],
  kRename: ["Rename the conversation", "Renomear a conversa"],
  kEdit: ["Edit your last message", "Editar sua última mensagem"],
  kAgain: ["Answer again", "Responder de novo"],
  kBranch: ["Version before, next", "Versão anterior, próxima"],
  kThink: ["Thinking on or off", "Pensar: ligar ou desligar"],
  kSettings: ["Settings", "Ajustes"],
  kTab: ["Chat or machine", "Conversa ou máquina"],
  kHelp: ["This list", "Esta lista"],
  credits: ["Markdown by marked (MIT), made safe by DOMPurify (Apache-2.0 or MPL-2.0).", "Markdown com marked (MIT), tornado seguro por DOMPurify (Apache-2.0 ou MPL-2.0)."],
  mStatus: ["Status", "Estado"],
  mContext: ["Context, in tokens", "Contexto, em tokens"],
  mActive: ["Answering", "Respondendo"],
  mQueued: ["In the queue", "Na fila"],
  mUptime: ["Up for", "No ar há"],
  mMemory: ["Memory", "Memória"],
  mMemorySub: ["{a} in use, {b} planned, {c} allowed", "{a} em uso, {b} planejados, {c} permitidos"],
  mMemoryOnly: ["{a} in use", "{a} em uso"],
  mNoPlan: ["There is no plan: this server plays a script instead of a model.", "Não há plano: este servidor segue um roteiro em vez de um modelo."],
  weights: ["Weights", "Pesos"],
  kv: ["Context (KV)", "Contexto (KV)"],
  borders: ["Saved states", "Estados salvos"],
  scratch: ["Working space", "Espaço de trabalho"],
  mInUse: ["in use now", "em uso agora"],
  mSpeed: ["Tokens a second", "Tokens por segundo"],
  mSpeedSub: ["the last {x}", "últimos {x}"],
  mWritten: ["written", "escritos"],
  mRead: ["read", "lidos"],
  mJobs: ["Running now", "Em andamento"],
  mNoJobs: ["Nothing runs.", "Nada em andamento."],
  mBorders: ["Saved states", "Estados salvos"],
  mNoBorders: ["None yet. A state is kept where a conversation can go on without being read again.", "Nenhum ainda. Um estado é guardado onde uma conversa pode seguir sem ser lida de novo."],
  mCacheSub: ["{a} of {b} used. Prompts that found one: {hits}, none: {misses}", "{a} de {b} usados. Prompts que acharam um: {hits}, nenhum: {misses}"],
  cWhere: ["Where", "Onde"],
  cMemory: ["memory", "memória"],
  cDisk: ["disk", "disco"],
  cRequest: ["Request", "Pedido"],
  cState: ["State", "Estado"],
  cPrompt: ["Prompt", "Prompt"],
  cAge: ["Age", "Idade"],
  cTokens: ["Tokens", "Tokens"],
  cSize: ["Size", "Tamanho"],
  cHits: ["Used", "Usos"],
  s_ok: ["ready", "pronto"],
  s_loading: ["loading", "carregando"],
  s_draining: ["shutting down", "encerrando"],
  s_failed: ["failed", "falhou"],
  s_gone: ["not reachable", "fora do ar"],
  s_prep: ["prepared", "em preparo"],
  s_queued: ["queued", "na fila"],
  s_prefill: ["reading", "lendo"],
  s_decode: ["writing", "escrevendo"],
  s_done: ["done", "pronto"],
};

export const languages = ["en", "pt"];

/** @returns {string} "en" or "pt" */
export const language = () => (document.documentElement.lang === "pt" ? "pt" : "en");

/** The text of a key, in the page's language. @param {string} key @param {Object} [values] @returns {string} */
export function t(key, values = {}) {
  let text = table[key]?.[languages.indexOf(language())] ?? key;
  if (text.includes("|")) text = text.split("|")[values.n === 1 ? 0 : 1];
  return text.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name] ?? ""));
}

/** Fills in the texts of elements with data-t (content), data-t-label (aria-label and title), data-t-hint (placeholder). */
export function fillTexts(root = document) {
  for (const e of root.querySelectorAll("[data-t]")) e.textContent = t(e.dataset.t);
  for (const e of root.querySelectorAll("[data-t-label]")) {
    e.setAttribute("aria-label", t(e.dataset.tLabel));
    if (e.tagName === "BUTTON") e.title = t(e.dataset.tLabel);
  }
  for (const e of root.querySelectorAll("[data-t-hint]")) e.setAttribute("placeholder", t(e.dataset.tHint));
}

/* ---- numbers in the language's form ---- */

const marks = { en: [",", "."], pt: [".", ","] };

/** Not by Intl, whose first call alone takes two frames. @param {number} v @param {number} [digits] behind the comma */
export function number(v, digits = 0) {
  const [group, comma] = marks[language()], [whole, part] = v.toFixed(digits).split(".");
  return whole.replace(/\B(?=(?:\d{3})+$)/g, group) + (part ? comma + part : "");
}

/** A time from milliseconds: 0.42 s, 12 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms) {
  const s = ms / 1000;
  if (s < 10) return number(s, s < 1 ? 2 : 1) + " s";
  if (s < 60) return number(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
}

/** A size of memory, with three digits. @param {number} n bytes */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) (n /= 1024), i++;
  return number(n, i && n < 10 ? 2 : i && n < 100 ? 1 : 0) + " " + units[i];
}
