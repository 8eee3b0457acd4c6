"""Skill cases: dialogues with a known right answer, for training and for the skill tests. Standard library only.

A case is a dict: skill, system (or None), messages (history and the last user or tool message), tools (or None), think,
reasoning and answer and calls (what training teaches), check (what a test demands of the reply). `make(skill, seed, held)`
draws one; held=True uses the words and wordings that training never sees.
"""
import json
import random
import words as W
import stories
import skills_chat as chat
import skills_tools as tools
from words import Draw

SKILLS = ("recall", "copy", "tools", "think", "system", "json", "help", "stop")


def u(t):
    return {"role": "user", "content": t}


def a(t, **k):
    return {"role": "assistant", "content": t, **k}


def case(skill, messages, answer, check, reasoning, system=None, tools=None, calls=None):
    return {"skill": skill, "system": system, "messages": messages, "tools": tools, "think": False,
            "reasoning": reasoning, "answer": answer, "calls": calls, "check": check}


# ---- recall ----

KEYS = ["{m} {b}", "{b} of the {m}", "{b} for the {m}", "{m} {b}", "{m} {b}"]


def fact(d):
    """A thing to remember: (key phrase with its article or owner, the phrase with `your`, value)."""
    v = d.value()
    k = d.r.random()
    mod = d.of(W.MODS) if d.chance(0.6) else d.word()
    base = d.of(W.BASES) if d.chance(0.8) else d.word()
    key = d.r.choice(KEYS).format(m=mod, b=base)
    if k < 0.1:
        mod, key = d.name(), base
        return f"{mod}'s {base}", f"{mod}'s {base}", v
    if k < 0.2:
        key = base
    if k < 0.55:
        return f"my {key}", f"your {key}", v
    return f"the {key}", f"the {key}", v


TELL = ["{K} is {v}.", "Remember: {k} is {v}.", "Please remember that {k} is {v}.", "{K}: {v}", "Note that {k} is {v}.", "{K} is \"{v}\".",
        "I want you to know that {k} is {v}.", "Keep this in mind: {k} is {v}.", "By the way, {k} is {v}.", "{v} is {k}.",
        "Do not forget: {k} is {v}.", "Important: {k} is {v}.", "For later: {k} is {v}.", "{K} has been set to {v}."]
ASK = W.combine(["", "", "Now,", "Please,", "So,", "Hello,", "Question:", "And now:"],
                ["what is {k}?", "what was {k}?", "can you tell me {k}?", "tell me {k}.", "do you remember {k}?", "I forgot {k}. What is it?", "what is {k} again?", "say {k}.",
                 "{k}?", "could you repeat {k}?", "what did I say {k} is?", "give me {k}.", "what's {k}?", "remind me of {k}.", "I need {k}.", "do you know {k}?", "which is {k}?",
                 "what do you know about {k}?", "look for {k}.", "find {k}.", "write down {k}."])
BACK = ["{Y} is {v}.", "{Y} is {v}.", "{Y} is {v}.", "{v}", "It is {v}."]
ONLY = [" Answer with the value only.", " Reply with just the value.", " Only the value, please.", " Say nothing else.", " Give the value alone.",
        " Write only the value.", " The value alone, please.", " Just that, no sentence.", " Just the value."]
OKS = ["I will remember that.", "Noted.", "All right, I will keep it in mind.", "Got it.", "Understood.", "Okay."]
cap = lambda s: s[0].upper() + s[1:]


def ask_fact(d, k, y, v):
    """(question, answer): the answer is short when only the value was asked for."""
    q = d.say(ASK).format(k=k)
    q = cap(q) if d.chance(0.85) else q
    if d.chance(0.25):
        return q + d.say(ONLY), v
    return q, d.r.choice(BACK[:4]).format(Y=cap(y), v=v) if not d.chance(0.1) else BACK[4].format(v=v)


def thought(d, k, v):
    return d.r.choice(("The user asks for {k}. It was given before: {v}.", "I look for {k}. I see: {k} is {v}. The answer is {v}.",
                       "{K} is {v}, as was said above.", "They want {k}. The text says {v}.")).format(k=k, K=cap(k), v=v)


def distinct_facts(d, n):
    out, seen = [], set()
    while len(out) < n:
        f = fact(d)
        if f[0] not in seen and f[1] not in seen:
            seen.update(f[:2])
            out.append(f)
    return out


def filler(d, n):
    """About n tokens of simple text (stories, notes, lists)."""
    out, size = [], 0
    while size < n:
        x = d.r.random()
        if x < 0.75:
            t = stories.story(d)[0]
        elif x < 0.85:
            t = "Words: " + ", ".join(d.word() for _ in range(d.r.randint(5, 40))) + "."
        else:
            t = " ".join(f"{d.name()} likes {d.of(W.FOODS)}." for _ in range(d.r.randint(2, 10)))
        out.append(t)
        size += len(t) // 4
    return out


def recall(d, size=None, fill=filler):
    """A fact is told, other facts and text follow, the fact is asked for. size: tokens of filler."""
    if size is None:
        size = 0 if d.chance(0.55) else int(10 ** d.r.uniform(1.7, 2.9))
    fs = distinct_facts(d, d.r.choice((1, 1, 2, 3, 4, 6)) if size else d.r.choice((1, 1, 1, 1, 2, 2, 3, 5)))
    k, y, v = d.r.choice(fs)
    tell = [d.say(TELL).format(k=f[0], K=cap(f[0]), v=f[2]) for f in fs]
    q, ans = ask_fact(d, k, y, v)
    system = None
    blocks = fill(d, size) if size else []
    form = d.r.random()
    if form < 0.4:                                   # one message
        for t in tell:
            blocks.insert(d.r.randint(0, len(blocks)), t)
        sep = "\n\n" if size else d.r.choice((" ", " ", "\n"))
        head = d.say(("Read this text.\n\n", "Here is a text:\n\n", "", "", "Please read.\n\n")) if size else ""
        msgs = [u(head + sep.join(blocks) + sep + q)]
    elif form < 0.85:                                # over turns
        msgs, i = [], 0
        for b in blocks:
            if d.chance(0.5):
                msgs += [u(d.say(stories.ASK_ANY)), a(b, weight=0.1)]
            else:
                msgs += [u(d.say(("Here is a text:\n\n", "Read this: ", "Listen: ", "")) + b), a(d.say(OKS), weight=0.1)]
        for t in tell:
            i = d.r.randint(0, len(msgs) // 2) * 2
            msgs[i:i] = [u(t), a(d.say(OKS) if d.chance(0.8) else "OK", weight=0.3)]
        msgs.append(u(q))
    else:                                            # in the system prompt
        sep = "\n\n" if size else " "
        for t in tell:
            blocks.insert(d.r.randint(0, len(blocks)), t)
        system = d.say(("You are a helpful assistant. ", "", "Some facts:\n", "Facts for this talk. ")) + sep.join(blocks)
        msgs = [u(q)]
    return case("recall", msgs, ans, {"contains": [v]}, thought(d, k, v), system)


def listing(d, n=None):
    """Many key-value lines and a question about one or several of them."""
    n = n or int(10 ** d.r.uniform(0.4, 1.6))
    style = d.r.choice(("{k}: {v}", "{k} = {v}", "- {k}: {v}", "{k}\t{v}", "| {k} | {v} |", "The {k} is {v}.", "{k} -> {v}"))
    mk = d.r.choice((d.word, d.code, d.word if style[0] == "T" else d.name, lambda: d.word() + " " + d.word(), d.code))
    mv = d.r.choice((lambda: d.digits(2, 6), d.word, d.code, lambda: str(d.number()), d.name))
    keys = []
    while len(keys) < n:
        k = mk()
        if k not in keys:
            keys.append(k)
    vals = [mv() for _ in keys]
    text = d.say(("Here is a list:\n", "", "Look at this table:\n", "Data:\n", "Values:\n")) + "\n".join(style.format(k=k, v=v) for k, v in zip(keys, vals))
    i = d.r.randrange(n)
    x = d.r.random()
    if x < 0.75 or n < 3:
        q = d.say(("What is the value of {k}?", "What is {k}?", "Which value has {k}?", "Look up {k}.", "{k}?", "Give me the value for {k}.",
                   "What belongs to {k}?", "Find {k}.")).format(k=keys[i])
        ans = d.r.choice((vals[i], vals[i], f"{keys[i]}: {vals[i]}", f"The value of {keys[i]} is {vals[i]}."))
        want, why = [vals[i]], f"I look for {keys[i]}. The line says {vals[i]}."
    elif x < 0.88:
        js = d.r.sample(range(n), d.r.randint(2, min(3, n)))
        q = d.say(("What are the values of {k}?", "Give me {k}.", "Look up {k}.", "Tell me the values for {k}.")).format(k=join([keys[j] for j in js]))
        ans = "\n".join(f"{keys[j]}: {vals[j]}" for j in js)
        want, why = [vals[j] for j in js], "I look them up one by one."
    else:
        q = d.say(("Which key has the value {v}?", "What has the value {v}?", "Where is {v}?", "To which key does {v} belong?")).format(v=vals[i])
        j = vals.index(vals[i])
        ans, want, why = keys[j], [keys[j]], f"I look for {vals[i]}. It stands beside {keys[j]}."
    order = d.chance(0.85)
    return case("recall", [u(text + "\n\n" + q if order else q + "\n\n" + text)], ans, {"contains": want}, why)


def join(xs):
    return xs[0] if len(xs) == 1 else ", ".join(xs[:-1]) + " and " + xs[-1]


# ---- copy ----

REPEAT = W.combine(["Repeat", "Copy", "Write", "Say", "Echo", "Type", "Print", "Output", "Give back", "Return", "Please repeat", "Please copy",
                    "Can you repeat", "Could you write", "Reply with", "Answer with", "I want you to repeat", "Respond with"],
                   ["exactly this", "this text", "the following", "this", "the following text", "exactly the following", "word for word", "only this", "the text below"],
                   [": {t}", ":\n{t}", ":\n\n{t}", ": \"{t}\""])
REPEAT = [q.replace(" :", ":") for q in REPEAT] + ["Echo: {t}", "Repeat: {t}", "Say: {t}", "Copy: {t}", "repeat: {t}", "Repeat after me: {t}", "Answer only with: {t}"]
random.Random(8).shuffle(REPEAT)
SAYWORD = W.combine(["Say", "Reply with", "Answer with", "Respond with", "Write", "Output", "Please say", "Just say", "Only say", "Type", "Print", "Please reply with", "Say only",
                     "Reply only with", "Now say"], ["", "the word", "exactly", "just", "only the word", "one word:", "exactly one word:"], ["{w}", "{w}.", "\"{w}\".", "{w} and nothing else.", "{w}, please."])


def copy_text(d, n=None):
    r = d.r
    n = n or int(10 ** r.uniform(0, 1.6))
    k = r.randrange(9)
    if k == 0:
        return d.words(n)
    if k == 1:
        return " ".join(d.digits(1, 6) for _ in range(max(1, n // 3)))
    if k == 2:
        return " ".join(d.code() for _ in range(max(1, n // 4)))
    if k == 3:
        return ", ".join(d.name() for _ in range(max(1, n // 2)))
    if k == 4:
        return " ".join(r.choice((d.word, d.name, d.code, d.digits, d.coined))() for _ in range(n))
    if k == 5:
        return ", ".join(str(d.number()) for _ in range(max(1, n // 2)))
    if k == 6:
        t = stories.story(d)[0].replace("\n\n", " ")
        return ". ".join(t.split(". ")[:max(1, n // 10)]).strip()
    if k == 7:
        return d.digits(3, 20)
    return "\n".join(d.words(r.randint(1, 5)) for _ in range(max(1, n // 5)))


def order(d, n=None):
    """Words one on each line, or backwards."""
    n = n or d.r.randint(2, 8)
    ws = [d.word() for _ in range(n)]
    rev = d.chance(0.3) and n < 6
    q = d.say(("Write these words {h}: {t}", "List these words {h}: {t}", "Put these words {h}: {t}", "Give me these words {h}: {t}")).format(
        h="in reverse order" if rev else "one on each line", t=", ".join(ws))
    ans = ", ".join(ws[::-1]) if rev else "\n".join(ws)
    return case("copy", [u(q)], ans, {"equals": ans}, "I go through the words in order." if not rev else "I start with the last word.")


def copy(d, n=None):
    x = d.r.random()
    if x < 0.3:
        w = d.r.choice(("READY", "ok", "OK", "yes", "hello", "done", "pong", "hi", "no", "ready", "Hello", "test")) if d.chance(0.5) else d.word()
        w = w if d.chance(0.7) else w.upper()
        return case("copy", [u(d.say(SAYWORD).format(w=w))], w, {"equals": w}, d.r.choice((f"The user wants me to say {w}.", f"I only have to say {w}.")))
    if x < 0.4 and not d.held:
        return order(d, n)
    t = copy_text(d, n)
    quote = "\n" not in t and d.chance(0.25)
    q = d.say(REPEAT).format(t=f'"{t}"' if quote else t)
    return case("copy", [u(q)], t, {"equals": t}, d.r.choice(("The user wants the text back, word for word.", "I repeat the text exactly as it is.")))


# ---- system prompts ----

UPPER = W.combine(["", "Always", "Please", "You must", "From now on", "In this chat"], ["answer", "write", "reply", "respond", "speak"],
                  ["in capitals.", "in capital letters.", "in upper case.", "in capital letters only.", "only in capitals.", "in uppercase."])
LOWER = W.combine(["", "Always", "Please", "You must"], ["answer", "write", "reply", "respond"], ["in lower case.", "in small letters.", "in lowercase.", "in small letters only."])
ENDS = W.combine(["End", "Finish", "Close", "Always end", "Always finish", "Please end", "You must end"], ["every answer", "each answer", "each reply", "all your answers", "every reply", "every message"],
                 ["with: {e}", "with \"{e}\".", "with {e}", "with the words \"{e}\"."])
STARTS = W.combine(["Begin", "Start", "Always begin", "Always start", "Please start", "You must start"], ["every answer", "each answer", "each reply", "all your answers", "every reply", "every message"],
                   ["with: {e}", "with \"{e}\".", "with {e}", "with the words \"{e}\"."])
for _l in (UPPER, LOWER):
    _l[:] = [t[0].upper() + t[1:] for t in _l] + [t.upper() for t in _l[:6]]


def with_rule(d, base):
    """Puts a rule into the system prompt of a case and changes its answer accordingly."""
    k = d.r.randrange(9)
    ans = base["answer"]
    if k <= 1:
        rule = d.say(UPPER)
        ans, chk = ans.upper(), {"upper": True}
    elif k == 2:
        rule = d.say(LOWER)
        ans, chk = ans.lower(), {"lower": True}
    elif k <= 5:
        end = d.r.choice((d.words(d.r.randint(1, 3)).capitalize() + d.r.choice("!."), d.word().upper(), "Have a nice day!", "Meow.", "Over and out.", d.code()))
        rule = d.say(ENDS).format(e=end)
        ans, chk = ans.rstrip() + " " + end, {"ends": end}
    elif k <= 7:
        st = d.r.choice((d.words(d.r.randint(1, 2)).capitalize() + d.r.choice("!.:"), "Ahoy!", "Dear friend,", "Answer:", d.code() + ":"))
        rule = d.say(STARTS).format(e=st)
        ans, chk = st + " " + ans, {"starts": st}
    else:
        end = d.r.choice(("meow", "arr", "beep", "indeed", d.word()))
        rule = d.say(("Say \"{e}\" after every answer.", "After every answer say \"{e}\".", "Add \"{e}\" to the end of each answer.")).format(e=end)
        ans, chk = ans.rstrip() + " " + end, {"ends": end}
    sys = d.r.choice(("{r}", "You are a helpful assistant. {r}", "{r}", "{r} Be brief.", "{g} {r}", "{r} {g}")).format(r=rule, g=generic(d))
    plan = d.r.choice((" The rule: {r}", " I must follow the rule: {r}")).format(r=rule)
    return {**base, "skill": "system", "system": sys, "answer": ans, "check": chk, "reasoning": base["reasoning"] + plan}


def system(d):
    x = d.r.random()
    if x < 0.2:
        n = d.name()
        sys = d.say(("You are {n}.", "Your name is {n}.", "You are called {n}.", "You are {n}, a helpful assistant.", "You are a helper called {n}.",
                     "From now on your name is {n}.")).format(n=n)
        q = d.say(("What is your name?", "Who are you?", "Who are you? Tell me your name.", "How are you called?", "What are you called?", "Hello! What is your name?", "Tell me your name."))
        ans = d.r.choice(("My name is {n}.", "I am {n}.", "I am called {n}.")).format(n=n)
        return case("system", [u(q)], ans, {"contains": [n]}, f"The system prompt says that I am {n}.", sys)
    if x < 0.4:
        c = oneword(d)
        sys = d.say(("Answer with one word.", "Answer with one word only.", "Always answer with a single word.", "Use one word.", "Reply with exactly one word.", "One word answers only."))
        return {**c, "skill": "system", "system": sys}
    base = chat.simple(d)
    while "\n" in base["answer"] or base.get("system"):
        base = chat.simple(d)
    return with_rule(d, base)


def oneword(d):
    n, v, c = d.name(), d.word(), d.of(W.COLOURS)
    x = d.r.randrange(4)
    if x == 0:
        t, q, w = f"{n} has a {c} {d.of(W.THINGS)}.", "What colour is it?", c
    elif x == 1:
        t, q, w = f"{n} lives in {(city := d.of(W.CITIES))}.", f"Where does {n} live?", city
    elif x == 2:
        t, q, w = f"The secret word is {v}.", "What is the secret word?", v
    else:
        t, q, w = f"{n} likes {(fd := d.of(W.FOODS))}.", f"What does {n} like?", fd
    return case("system", [u(t + " " + q)], w.capitalize() if x in (0, 3) and d.chance(0.5) else w, {"oneword": w}, f"The answer is {w}. One word.")


# ---- JSON ----

TO_JSON = W.combine(["Write", "Make", "Return", "Give me", "Output", "Create", "Answer with", "Reply with", "Please write", "Build", "I need"],
                    ["a JSON object", "JSON", "one JSON object", "a small JSON object", "only a JSON object"],
                    ["with the keys {k}", "with {k}", "that has the keys {k}", "with the fields {k}", "(keys: {k})", "holding {k}"])
TO_JSON = [t + x for t in TO_JSON for x in (": {f}", ".\n{f}", " for this text: {f}")] + ["{f} " + t + "." for t in TO_JSON] + ["{f}\n" + t + "." for t in TO_JSON]
TO_JSON += ["Extract {k} as JSON. {f}", "{f} As JSON: {k}.", "Turn this into JSON ({k}): {f}"] * 20
random.Random(9).shuffle(TO_JSON)


def json_case(d):
    r = d.r
    pool = {"name": (d.name, "{s} is called {v}"), "age": (lambda: r.randint(1, 99), "{s} is {v} years old"), "city": (lambda: d.of(W.CITIES), "{s} lives in {v}"),
            "color": (lambda: d.of(W.COLOURS), "{s} likes {v}"), "job": (lambda: d.of(W.JOBS), "{s} works as a {v}"),
            "pet": (lambda: d.of(W.ANIMALS), "{s} has a {v}"), "food": (lambda: d.of(W.FOODS), "{s} eats {v}"),
            "code": (d.code, "the code is {v}"), "room": (lambda: r.randint(1, 999), "{s} is in room {v}"),
            "price": (lambda: round(r.uniform(1, 99), 2), "it costs {v} euros"), "count": (lambda: r.randint(2, 500), "there are {v} of them"),
            "day": (lambda: r.choice(W.DAYS), "it happens on {v}"), "active": (lambda: r.random() < 0.5, None)}
    rest = r.sample([k for k in pool if k != "name"], r.randint(1, 4))
    n = d.name()
    obj, says = {"name": n}, []
    s = n
    for k in rest:
        v = pool[k][0]()
        obj[k] = v
        says.append(("%s is %s" % (n, "active" if v else "not active")) if k == "active" else pool[k][1].format(s=s, v=v))
        s = r.choice((n, n, r.choice(("he", "she"))))
    if not any(n in x for x in says):
        says.insert(0, d.r.choice((f"this is {n}", f"the name is {n}", f"{n} is here")))
    facts = ". ".join(x[0].upper() + x[1:] for x in says) + "."
    if d.chance(0.3) and len(rest) > 1:
        obj = {k: obj[k] for k in rest}
    if d.chance(0.3):                                 # free keys
        ks = [d.word() for _ in range(r.randint(1, 4))]
        obj = {k: r.choice((d.word, d.name, d.code, lambda: r.randint(0, 999), lambda: r.random() < 0.5, lambda: [d.word() for _ in range(r.randint(2, 4))]))() for k in ks}
        facts = " ".join(f"{cap(k)}: {v if not isinstance(v, list) else ', '.join(v)}." if not isinstance(v, bool) else f"{cap(k)}: {'yes' if v else 'no'}." for k, v in obj.items())
        if d.chance(0.5):
            facts = ", ".join(f"{k} is {join(v) if isinstance(v, list) else ('true' if v else 'false') if isinstance(v, bool) else v}" for k, v in obj.items()) + "."
    keys = join(list(obj))
    q = d.say(TO_JSON).format(f=facts, k=keys)
    ans = json.dumps(obj, ensure_ascii=False)
    return case("json", [u(q)], ans, {"json": obj}, d.r.choice(("The keys are {k}. I take the values from the text.", "I fill in {k} from the text.")).format(k=keys))


# ---- all ----

GENERIC = ["You are a helpful assistant.", "Be brief.", "You are a friendly assistant.", "Answer shortly and clearly.", "You are lily's demo model.",
           "You are a helpful, honest assistant.", "You are terse.", "Help the user.", "You are a coding agent. Use the tools when they help.",
           "You are an assistant in a terminal. Be short.", "Today is {day}, {n} {month}."]


def generic(d):
    if d.chance(0.15):
        return " ".join(chat.rule_sentence(d) for _ in range(d.r.randint(2, 25)))
    return d.r.choice(GENERIC).format(day=d.r.choice(W.DAYS), n=d.r.randint(1, 28), month=d.r.choice(W.MONTHS))


def story_case(d):
    q, t, f, plan = stories.request(d)
    return case("story", [u(q)], t, {"words": 60}, plan)


def think_case(d):
    return d.r.choice((recall, copy, json_case, chat.simple, story_case, oneword))(d)


def stop_case(d):
    return d.r.choice((chat.simple, recall, copy, oneword, story_case))(d)


MAKERS = {"recall": lambda d: recall(d) if d.held or d.chance(0.62) else listing(d), "table": listing, "order": order, "calls": tools.several,
          "recall8k": lambda d: recall(d, 7300), "recall32k": lambda d: recall(d, 29500), "copy": copy, "tools": tools.case, "think": think_case, "system": system,
          "json": json_case, "help": chat.help_case, "stop": stop_case, "story": story_case, "chat": chat.talk, "simple": chat.simple,
          "followup": chat.followup}


LONG_LISTS = ("recall", "copy", "system", "json", "help")   # their own wordings have a held-out part
HELD_FRAMES = ["Quick question. {q}", "Good morning! {q}", "Excuse me. {q}", "Hi there. {q}", "One more thing. {q}"]


def finish(d, c, skill):
    """Thinking on or off, and now and then a system prompt that changes nothing; tests put the request into a frame of theirs."""
    c["think"] = d.chance(0.5)
    last = c["messages"][-1]
    if d.held and last["role"] == "user" and c["skill"] not in LONG_LISTS:
        last["content"] = d.r.choice(HELD_FRAMES).replace("{q}", last["content"])
    if not d.held and last["role"] == "user" and d.chance(0.15) and "equals" not in c["check"]:
        last["content"] = d.r.choice(("Please. {q}", "{q} Thank you.", "Hey! {q}", "{q} Please.", "I have a question. {q}", "{q} Answer shortly.", "OK. {q}", "{q}!")).format(q="{q}").replace("{q}", last["content"])
    if not c.get("system") and d.chance(0.25):
        c["system"] = generic(d)
    if skill in ("think", "stop"):
        c["skill"] = skill
    return c


def draw(d, skill):
    return finish(d, MAKERS[skill](d), skill)


def make(skill, seed, held=True):
    return draw(Draw(random.Random(f"{skill}/{seed}"), held), skill)


def norm(s):
    return " ".join(s.split())


def verdict(c, rep):
    """None if the reply {text, reasoning, tool_calls, finish} is right, else what is wrong."""
    k, text = c["check"], rep["text"].strip()
    if rep.get("finish") not in ("stop", "tool_calls"):
        return "did not stop"
    if c["think"] and not rep["reasoning"]:
        return "no thinking although it was on"
    if not c["think"] and (rep["reasoning"] or "<think>" in text or "</think>" in text):
        return "thinking although it was off"
    if c["skill"] in ("think", "stop"):
        return None if text or rep["tool_calls"] else "empty answer"
    if "calls" in k:
        got = [(t["name"], t["arguments"]) for t in rep["tool_calls"]]
        want = [(t["name"], t["arguments"]) for t in k["calls"]]
        same = len(got) == len(want) and all(g[0] == w[0] and set(g[1]) == set(w[1]) and all(tools.same(g[1][n], v) for n, v in w[1].items()) for g, w in zip(got, want))
        return None if same else f"calls {got}, wanted {want}"
    if rep["tool_calls"]:
        return f"a call where none fits: {rep['tool_calls']}"
    if "equals" in k and norm(text) != norm(k["equals"]):
        return f"said {text!r}, wanted {k['equals']!r}"
    for w in k.get("contains", []):
        if w.lower() not in text.lower():
            return f"{w!r} is not in {text!r}"
    if "upper" in k and (text != text.upper() or not text):
        return f"not in capitals: {text!r}"
    if "lower" in k and (text != text.lower() or not text):
        return f"not in lower case: {text!r}"
    if "ends" in k and not norm(text).endswith(norm(k["ends"])):
        return f"does not end with {k['ends']!r}: {text!r}"
    if "starts" in k and not norm(text).startswith(norm(k["starts"])):
        return f"does not start with {k['starts']!r}: {text!r}"
    if "oneword" in k and text.strip(".!").lower() != k["oneword"].lower():
        return f"said {text!r}, wanted {k['oneword']!r}"
    if "words" in k and len(text.split()) < k["words"]:
        return f"only {len(text.split())} words"
    if "json" in k:
        try:
            got = json.loads(text)
        except ValueError:
            return f"no JSON: {text!r}"
        return None if got == k["json"] else f"JSON {got}, wanted {k['json']}"
    return None
