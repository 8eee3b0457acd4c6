"""Small talk, simple knowledge, follow-up questions, and questions about lily. Standard library only."""
import words as W
import stories
from helpqa import HELP

u = lambda t: {"role": "user", "content": t}
a = lambda t, w=0.3: {"role": "assistant", "content": t, "weight": w}


def case(skill, messages, answer, reasoning, check=None, system=None):
    return {"skill": skill, "system": system, "messages": messages, "tools": None, "think": False, "reasoning": reasoning,
            "answer": answer, "calls": None, "check": check or {}}


GREET = [(("Hi", "Hello", "Hello!", "Hi there", "Hey", "Good morning", "Good evening!", "hello", "hi", "Hey there!", "Good day", "Hello there."),
          ("Hello! How can I help you?", "Hello! What can I do for you?", "Hi! How can I help?"), "The user says hello. I greet back."),
         (("How are you?", "How are you doing?", "How do you do?", "Are you well?", "How is it going?"),
          ("I am well, thank you. How can I help you?", "I am fine, thank you! What can I do for you?"), "A friendly question. I answer kindly."),
         (("Thank you.", "Thanks!", "Thank you very much.", "thanks", "Thanks a lot!", "Many thanks."),
          ("You are welcome!", "You are welcome. Is there anything else?", "I am glad to help."), "The user thanks me."),
         (("Bye", "Goodbye!", "See you.", "Good night.", "Bye bye!", "Farewell."), ("Goodbye!", "Goodbye! Have a nice day.", "See you soon!"), "The user says goodbye."),
         (("Who are you?", "What are you?", "Tell me about yourself.", "What is this?", "Are you a person?", "Introduce yourself.", "Are you a robot?"),
          ("I am the demo model of lily, a very small language model. I can tell stories, call tools, and answer questions about lily.",
           "I am a small language model that comes with lily. I tell stories, repeat things and use tools, but I know nothing of the world."), "The user asks who I am."),
         (("What is your name?", "How are you called?", "What should I call you?", "Your name?"),
          ("I am the demo model of lily.", "I have no name of my own. I am lily's demo model."), "The user asks for my name."),
         (("What can you do?", "How can you help me?", "What are you able to do?", "help", "What can I ask you?", "Help me."),
          ("I can tell short stories, remember what you tell me, copy text, write small JSON objects, call tools, and answer questions about lily.",
           "Ask me for a story, tell me something to remember, give me tools to call, or ask about lily's commands."), "The user asks what I can do. I list it."),
         (("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "A joke, please."),
          ("Why did the clock go to school? It wanted to learn to tell the time.", "What did the big bell say to the small bell? You ring a bell!",
           "Why was the pencil so happy? It had a good point."), "The user wants a joke."),
         (("I am sad.", "I am tired.", "I feel lonely.", "I had a bad day.", "I am bored."),
          ("I am sorry to hear that. Shall I tell you a story?", "That is hard. Would a short story cheer you up?"), "The user does not feel well. I am kind."),
         (("Test", "test", "Testing.", "Are you there?", "ping", "Is this working?", "Do you hear me?"),
          ("I am here. How can I help you?", "Yes, it works. What can I do for you?"), "The user tests whether I answer."),
         (("Yes.", "No.", "Okay.", "ok", "Good.", "Fine.", "I see."), ("All right. What would you like to do?", "Good. What can I do for you?"), "A short word. I ask what to do."),
         (("I like you.", "You are nice.", "Well done!", "Good job.", "Great!"), ("Thank you! That is kind of you.", "Thank you, I am glad."), "The user is kind. I thank them.")]
UNKNOWN = ["What is the capital of {c}?", "Who was {n}?", "When was {n} born?", "What is the meaning of {w}?", "Who wrote {w}?", "How far is it from {c} to {d}?",
           "Why is the {w} {k}?", "What do you think about {w}?", "Explain {w} to me.", "How does a {w} work?", "Who won the {w} in 1998?", "How many people live in {c}?",
           "Write a program that sorts {w}.", "Can you explain how {w} and {w2} are related?", "What is the population of {c}?", "Tell me about {w}.",
           "What is the best {w}?", "How do I cook {w}?", "Is {w} bigger than {w2}?", "Who is the president of {c}?", "What year did {w} begin?",
           "Describe {w}.", "Give me advice about {w}.", "What happened in {c} in 1920?", "Write an essay about {w}."]
IDK = ["I am only a small demo model and know nothing of the world, so I cannot answer that.", "I do not know. I am a very small model: ask me for a story, or about lily.",
       "That I cannot say. I am a demo model and know only simple things."]
OPP = dict(p.split("-") for p in """big-small hot-cold old-young day-night up-down in-out fast-slow happy-sad good-bad left-right open-closed wet-dry
light-dark long-short high-low full-empty loud-quiet rich-poor early-late hard-soft near-far thick-thin black-white yes-no first-last heavy-light
clean-dirty strong-weak sweet-sour start-end buy-sell win-lose""".replace("\n", " ").split())
SOUNDS = dict(cat="meow", dog="woof", cow="moo", sheep="baa", duck="quack", horse="neigh", pig="oink", lion="roar", owl="hoo", mouse="squeak", frog="croak", bee="buzz", hen="cluck")
NUM = W.L("zero one two three four five six seven eight nine ten eleven twelve")


def simple(d):
    r = d.r
    x = r.random()
    if x < 0.30:
        qs, ans, why = r.choice(GREET)
        return case("chat", [u(d.say(qs))], r.choice(ans), why)
    if x < 0.42:
        q = d.say(UNKNOWN).format(c=d.of(W.CITIES), d=d.of(W.CITIES), n=d.name(), w=d.word(), w2=d.word(), k=d.of(W.COLOURS))
        return case("chat", [u(q)], r.choice(IDK), "I am asked about the world. I do not know this.")
    if x < 0.52:
        m, n = (r.randint(0, 12), r.randint(0, 12)) if d.chance(0.6) else (r.randint(0, 99), r.randint(0, 99))
        k = r.randrange(3)
        if k == 0:
            s, op = m + n, ("plus", "+", "and")
        elif k == 1:
            m, n = max(m, n), min(m, n)
            s, op = m - n, ("minus", "-", "minus")
        else:
            m, n = m % 11, n % 11
            s, op = m * n, ("times", "*", "times")
        q = d.say(("What is {m} {o} {n}?", "How much is {m} {o} {n}?", "{m} {p} {n} =", "Calculate {m} {p} {n}.", "{m} {o} {n}?", "What does {m} {o} {n} make?")).format(m=m, n=n, o=op[0], p=op[1])
        return case("chat", [u(q)], r.choice((str(s), f"{m} {op[0]} {n} is {s}.", f"{s}.")), f"{m} {op[1]} {n} is {s}.", {"contains": [str(s)]})
    if x < 0.58:
        m = r.choice((0, 1, 1, 1, 1, r.randint(2, 90)))
        n = m + r.choice((r.randint(2, 12), r.randint(5, 30), r.randint(20, 60), 99 if m == 1 else 10))
        q = d.say(("Count from {m} to {n}.", "Write the numbers from {m} to {n}.", "Please count from {m} to {n}.", "Count up to {n}, starting at {m}.", "List the numbers {m} to {n}.", "Count {m} to {n}")).format(m=m, n=n)
        sep = r.choice((", ", ", ", " ", "\n"))
        q += {"\n": " One on each line.", " ": " Only spaces between them."}.get(sep, "")
        return case("chat", [u(q)], sep.join(map(str, range(m, n + 1))), f"I count from {m} to {n}.")
    if x < 0.66:
        w, o = r.choice(list(OPP.items()))
        w, o = (w, o) if d.chance(0.5) or w == "light" or o == "light" else (o, w)
        q = d.say(("What is the opposite of {w}?", "Opposite of {w}?", "Tell me the opposite of {w}.", "The opposite of {w} is", "Name the opposite of {w}.")).format(w=w)
        return case("chat", [u(q)], r.choice((o, f"The opposite of {w} is {o}.", o.capitalize() + ".")), f"The opposite of {w} is {o}.")
    if x < 0.70:
        w, o = r.choice(list(SOUNDS.items()))
        q = d.say(("What does a {w} say?", "What sound does a {w} make?", "How does a {w} go?")).format(w=w)
        return case("chat", [u(q)], f"A {w} says {o}.", f"A {w} says {o}.")
    if x < 0.76:
        lst, one = r.choice(((W.DAYS, "day"), (W.MONTHS, "month")))
        i = r.randrange(len(lst))
        nx = d.chance(0.5)
        j = (i + (1 if nx else -1)) % len(lst)
        q = d.say(("Which {o} comes {k} {w}?", "What {o} is {k} {w}?", "Name the {o} {k} {w}.", "Tell me the {o} {k} {w}.")).format(o=one, k="after" if nx else "before", w=lst[i])
        return case("chat", [u(q)], r.choice((lst[j] + ".", f"{lst[j]} comes {'after' if nx else 'before'} {lst[i]}.")), f"The {one} {'after' if nx else 'before'} {lst[i]} is {lst[j]}.")
    if x < 0.82:
        w = d.word()
        q = d.say(("Spell {w}.", "Spell the word {w}.", "How do you spell {w}?", "Write {w} letter by letter.")).format(w=w)
        return case("chat", [u(q)], "-".join(w), f"I write {w} with a dash between the letters.")
    if x < 0.88:
        n = r.randint(2, 6)
        kind, lst = r.choice((("animals", W.ANIMALS), ("colours", W.COLOURS), ("cities", W.CITIES), ("foods", W.FOODS), ("names", W.NAMES), ("days of the week", W.DAYS), ("months", W.MONTHS)))
        q = d.say(("Name {n} {k}.", "List {n} {k}.", "Tell me {n} {k}.", "Give me {n} {k}.", "Write down {n} {k}.", "{n} {k}, please.")).format(n=r.choice((n, NUM[n])), k=kind)
        ws = lst[:n] if lst in (W.DAYS, W.MONTHS) else r.sample(lst, n)
        form = r.choice((", ".join(ws) + ".", "\n".join("- " + w for w in ws), "\n".join(f"{i + 1}. {w}" for i, w in enumerate(ws))))
        return case("chat", [u(q)], form, f"I name {n} {kind}.")
    if x < 0.94:
        n, t, c = d.name(), d.of(W.THINGS), d.of(W.COLOURS)
        m = d.name()
        k = r.randrange(4)
        if k == 0:
            s, q, w = f"{n} has a {c} {t}.", f"What does {n} have?", f"{n} has a {c} {t}."
        elif k == 1:
            s, q, w = f"{n} gave a {t} to {m}.", f"Who has the {t} now?", f"{m} has the {t} now."
        elif k == 2:
            p = r.choice(("under the bed", "in the kitchen", "on the table", "behind the door", "in the garden", "in the box"))
            s, q, w = f"{n} put the {t} {p}.", f"Where is the {t}?", f"The {t} is {p}."
        else:
            s, q, w = f"{n} is older than {m}.", "Who is older?", f"{n} is older."
        return case("chat", [u(f"{s} {q}")], w, f"The text says: {s}", {"contains": [w.split()[-1].strip('.')]} if k != 3 else {"contains": [n]})
    if x < 0.97:
        w = d.words(r.randint(2, 7))
        up = d.chance(0.5)
        q = d.say(("Write this in {k}: {w}", "Put this into {k}: {w}", "Change this to {k}: {w}", "Turn this into {k}: {w}")).format(k="capital letters" if up else "small letters", w=w if up else w.upper())
        return case("chat", [u(q)], w.upper() if up else w, "I change the letters and keep the words.", {"equals": w.upper() if up else w})
    return help_case(d)


def help_case(d):
    """A question about lily; the last wording of each entry is held out."""
    qs, answers, key = d.r.choice(HELP)
    q = qs[-1] if d.held and len(qs) > 2 else d.r.choice(qs[:-1] if len(qs) > 2 else qs)
    if not d.held:
        x = d.r.random()
        if x < 0.1:
            q = q[0].lower() + q[1:].rstrip("?.")
        elif x < 0.2:
            q = d.r.choice(("Please tell me: ", "Hello! ", "A question: ", "Hi, ", "I use lily. ", "With lily, ")) + q
        elif x < 0.25:
            q = q.rstrip("?.") + d.r.choice((" in lily?", " with lily?", "? Thanks.", ", please?"))
    ans = d.r.choice(answers)
    return case("help", [u(q)], ans, d.r.choice(("A question about lily. " + "I know this.", "The user asks about lily: " + key + ".")), {"contains": [key]})


RULES = ["Always be {j}.", "Never talk about {w}.", "The user is called {n}.", "You work for {n} in {c}.", "Use short sentences.", "If the user asks about {w}, be {j}.",
         "The project is called {w}.", "Files are in the folder {w}.", "Answer politely.", "Do not mention {w}.", "The team meets on {day}.", "When you are not sure, say so.",
         "Prefer {w} to {w2}.", "You can use the tools that are given.", "Think before you answer.", "Keep answers under {k} words if you can.", "The {w} is {col}."]


def rule_sentence(d):
    return d.r.choice(RULES).format(j=d.of(W.ADJ), w=d.word(), w2=d.word(), n=d.name(), c=d.of(W.CITIES), day=d.r.choice(W.DAYS), k=d.r.choice((50, 80, 100, 200)), col=d.of(W.COLOURS))


def followup(d):
    """Questions about earlier turns of the talk itself."""
    r = d.r
    k = r.randrange(6)
    if k == 0:
        q, t, f, _ = stories.request(d)
        m, ans, want = r.choice((
            (("What was the name of the {k}?", "How was the {k} called?", "Who was the hero?", "What is the {k} called?"), "The {k} is called {N}.", "N"),
            (("Who was the friend?", "What was the friend called?", "Who was {N}'s friend?", "Name {N}'s friend."), "{N}'s friend is {F} the {fk}.", "F"),
            (("What thing was in the story?", "Which thing was important?", "What was the thing in the story?", "Which thing did you tell about?"), "It was {O}.", "o"),
            (("What kind of animal or person was {F}?", "What was {F}?", "Tell me what {F} is."), "{F} is {fk2}.", "fk")))
        if want not in ("N", "F", "fk") and f["o"] not in t:
            want, m, ans = "N", ("What was the name of the {k}?",), "The {k} is called {N}."
        f = {**f, "fk2": stories.art(f["fk"])}
        return case("followup", [u(q), a(t, 0.5), u(d.say(m).format(**f))], ans.format(**f), "I look at the story above.", {"contains": [f[want]]})
    if k == 1:
        n = r.randint(1, 4)
        hist, qs = [], []
        for _ in range(n):
            c = simple(d)
            hist += [c["messages"][0], a(c["answer"])]
            qs.append(c["messages"][0]["content"])
        first = d.chance(0.5) or n == 1
        q = d.say(("What was my first question?", "What did I ask first?", "Which was the first thing I said?", "Repeat my first message.") if first else
                  ("What was my last question?", "What did I ask before?", "What did I say just now?", "Repeat my last message."))
        w = qs[0] if first else qs[-1]
        return case("followup", hist + [u(q)], r.choice((w, f'You said: "{w}"')), "I look at the earlier messages.", {"contains": [w]})
    if k == 2:
        c = simple(d)
        q = d.say(("Say that again.", "Repeat your answer.", "What did you say?", "Once more, please.", "Can you say that again?"))
        return case("followup", [c["messages"][0], a(c["answer"]), u(q)], c["answer"], "I repeat my answer.", {"equals": c["answer"]})
    if k == 3:
        c = simple(d)
        w = c["answer"]
        q = d.say(("Now write that in capitals.", "Say it in capital letters.", "The same in capitals, please.", "And in upper case?"))
        return case("followup", [c["messages"][0], a(w), u(q)], w.upper(), "I repeat my answer in capitals.", {"equals": w.upper()})
    if k == 4:
        n, v, v2, kk = d.name(), d.word(), d.word(), d.of(W.MODS)
        m = [u(f"The {kk} word is {v}."), a("Noted."), u(d.say((f"I was wrong: the {kk} word is {v2}.", f"Sorry, the {kk} word is {v2} now.", f"Change the {kk} word to {v2}."))), a("Okay."), u(d.say((f"What is the {kk} word?", f"Tell me the {kk} word.", f"Which {kk} word is right?")))]
        return case("followup", m, f"The {kk} word is {v2}.", f"The {kk} word was changed to {v2}.", {"contains": [v2]})
    n, food, city = d.name(), d.of(W.FOODS), d.of(W.CITIES)
    m = [u(d.say((f"My name is {n}.", f"I am {n}.", f"Hello, I am {n}.", f"You can call me {n}."))), a(d.r.choice((f"Hello, {n}! How can I help you?", f"Nice to meet you, {n}!"))),
         u(f"I live in {city} and I like {food}."), a(d.r.choice(("That sounds nice!", f"{city}, how nice!", "I see.")))]
    q, ans, w = r.choice((("What is my name?", f"Your name is {n}.", n), ("Where do I live?", f"You live in {city}.", city), ("What do I like?", f"You like {food}.", food),
                          ("Who am I?", f"You are {n}.", n)))
    return case("followup", m + [u(q)], ans, f"The user told me: {w}.", {"contains": [w]})


def talk(d):
    """Some turns of mixed small requests."""
    hist = []
    for _ in range(d.r.randint(1, 4)):
        c = simple(d)
        hist += [c["messages"][0], a(c["answer"])]
    if d.chance(0.3):
        q, t, _, _ = stories.request(d)
        hist += [u(q), a(t, 0.5)]
    c = simple(d)
    return {**c, "messages": hist + c["messages"]}
