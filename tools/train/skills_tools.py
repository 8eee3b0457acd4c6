"""Tool cases: a list of functions, a question, the right calls, and answers from results. Standard library only."""
import json
import words as W

# name, description, {param: type}, wordings with {param}, result maker, answer with {param} and result fields
KNOWN = [
    ("get_weather", "Return the current weather for a city.", {"city": "city"}, ["What is the weather in {city}?", "How is the weather in {city}?", "Is it warm in {city}?", "Weather in {city}?", "Tell me the weather in {city}.", "What's the weather like in {city} today?"],
     lambda d: {"temperature": d.r.randint(-9, 35), "sky": d.r.choice(("sunny", "cloudy", "rainy", "windy", "snowy", "clear"))}, "It is {temperature} degrees and {sky} in {city}."),
    ("get_forecast", "Weather forecast for some days.", {"city": "city", "days": "integer"}, ["Forecast for {city}, {days} days.", "Give me the forecast of the next {days} days in {city}.", "What will the weather be in {city} over {days} days?"],
     lambda d: {"forecast": d.r.choice(("rain", "sun", "snow", "storms", "fog"))}, "The forecast for {city} is {forecast}."),
    ("get_time", "Current time in a city.", {"city": "city"}, ["What time is it in {city}?", "Time in {city}?", "Tell me the time in {city}.", "How late is it in {city}?"],
     lambda d: {"time": f"{d.r.randint(0, 23):02d}:{d.r.randint(0, 59):02d}"}, "It is {time} in {city}."),
    ("search", "Search the web.", {"query": "words"}, ["Search for {query}.", "Search the web for {query}", "Look up {query} on the web.", "Find pages about {query}."],
     lambda d: {"result": d.words(3)}, "I found this: {result}."),
    ("read_file", "Read a file.", {"path": "path"}, ["Read the file {path}.", "What is in {path}?", "Show me {path}.", "Open {path}.", "Please read {path}"],
     lambda d: {"content": d.words(d.r.randint(2, 8))}, "The file {path} says: {content}"),
    ("list_files", "List the files of a folder.", {"path": "dir"}, ["List the files in {path}.", "What files are in {path}?", "Show the folder {path}."],
     lambda d: {"files": f"{d.word()}.txt, {d.word()}.c"}, "There are these files: {files}."),
    ("write_file", "Write text to a file.", {"path": "path", "content": "words"}, ["Write \"{content}\" to {path}.", "Create the file {path} with the text \"{content}\".", "Save \"{content}\" in {path}."],
     lambda d: {"status": d.r.choice(("ok", "saved", "written"))}, "The file {path} is written ({status})."),
    ("run_command", "Run a shell command.", {"command": "command"}, ["Run {command}", "Run the command {command}", "Execute: {command}", "Please run `{command}`."],
     lambda d: {"output": d.words(d.r.randint(1, 5))}, "The output is: {output}"),
    ("send_message", "Send a message to a person.", {"to": "name", "text": "words"}, ["Send {to} the message \"{text}\".", "Write to {to}: {text}", "Tell {to} \"{text}\".", "Message {to}: \"{text}\""],
     lambda d: {"status": "sent"}, "The message to {to} was sent."),
    ("set_timer", "Start a timer.", {"minutes": "integer"}, ["Set a timer for {minutes} minutes.", "Start a timer of {minutes} minutes.", "Wake me in {minutes} minutes.", "Timer, {minutes} minutes."],
     lambda d: {"status": "started"}, "The timer is set to {minutes} minutes."),
    ("set_light", "Turn a lamp on or off.", {"room": "word", "on": "boolean"}, ["Turn {on} the light in the {room}.", "Switch {on} the lamp in the {room}.", "Light {on} in the {room}, please."],
     lambda d: {"status": "done"}, "Done. The light in the {room} is {on}."),
    ("add", "Add two numbers.", {"a": "integer", "b": "integer"}, ["Add {a} and {b}.", "What is {a} plus {b}?", "Use the tool to add {a} and {b}.", "{a} + {b}?"],
     lambda d: {"sum": d.r.randint(2, 2000)}, "The sum is {sum}."),
    ("multiply", "Multiply two numbers.", {"a": "integer", "b": "integer"}, ["Multiply {a} by {b}.", "What is {a} times {b}?", "Calculate {a} * {b}."],
     lambda d: {"product": d.r.randint(2, 90000)}, "The product is {product}."),
    ("convert_money", "Convert an amount.", {"amount": "number", "to": "currency"}, ["Convert {amount} euros to {to}.", "How much is {amount} euros in {to}?", "Change {amount} euros into {to}."],
     lambda d: {"amount_converted": round(d.r.uniform(1, 900), 2)}, "That is {amount_converted} {to}."),
    ("create_event", "Add an event to the calendar.", {"title": "words", "day": "day"}, ["Put \"{title}\" on {day}.", "Add an event \"{title}\" for {day}.", "Plan \"{title}\" on {day}."],
     lambda d: {"id": d.number()}, "The event is in the calendar under number {id}."),
    ("get_price", "Price of an item in the shop.", {"item": "thing"}, ["How much is a {item}?", "What does a {item} cost?", "Price of a {item}?", "Tell me the price of the {item}."],
     lambda d: {"price": round(d.r.uniform(1, 200), 2)}, "The {item} costs {price}."),
    ("find_person", "Look up a person.", {"name": "name"}, ["Who is {name}?", "Find {name}.", "Look up the person {name}.", "Where does {name} work?"],
     lambda d: {"job": d.of(W.JOBS), "city": d.of(W.CITIES)}, "{name} works as a {job} in {city}."),
    ("translate", "Translate a text.", {"text": "words", "language": "language"}, ["Translate \"{text}\" into {language}.", "How do you say \"{text}\" in {language}?"],
     lambda d: {"translation": " ".join(d.coined() for _ in range(3))}, "In {language} it is: {translation}"),
]
VERBS = W.L("get find set make open close start stop count check send load save move add remove show read write play book order call list fetch update")
PARAMS = W.L("city name count size amount color id date room user title speed limit level target source path mode width height weight price length text code flag force quiet enabled all")
WANT = ["Call {t} with {a}.", "Use {t} with {a}.", "Please run {t} with {a}.", "Use the tool {t}. {A}.", "I need {t}: {a}.", "Can you call {t}? {A}.",
        "Do {t} for me with {a}.", "Run the function {t} with {a}.", "{t}, {a}.", "Invoke {t} with {a}."]


def value(d, t):
    r = d.r
    if t == "integer":
        return d.number(10000)
    if t == "number":
        return r.choice((round(r.uniform(0, 100), 1), round(r.uniform(0, 1000), 2), r.randint(0, 100) + 0.5))
    if t == "boolean":
        return r.random() < 0.5
    return {"city": lambda: d.of(W.CITIES) if d.chance(0.8) else d.name(), "words": lambda: d.words(r.randint(1, 5)), "name": d.name, "word": d.word,
            "path": lambda: r.choice(("", "/", "src/", "docs/", d.word() + "/", "/tmp/")) + d.word() + r.choice((".txt", ".c", ".py", ".md", ".json", ".csv")),
            "dir": lambda: r.choice((".", "src", "/tmp", d.word(), "/" + d.word(), d.word() + "/" + d.word())),
            "command": lambda: r.choice(("ls", "make", "cat {w}.txt", "echo {w}", "git status", "ls -l {w}", "python3 {w}.py", "grep {w} {x}.c", "wc -l {w}.txt")).format(w=d.word(), x=d.word()),
            "currency": lambda: r.choice(("dollars", "pounds", "yen", "francs", "crowns")), "day": lambda: r.choice(W.DAYS),
            "thing": lambda: d.of(W.THINGS), "language": lambda: r.choice(W.L("French German Italian Spanish Greek Dutch Polish Latin Finnish")),
            "string": lambda: r.choice((d.word, d.name, d.code, lambda: d.of(W.CITIES), lambda: d.words(2)))()}[t]()


SIMPLE = {"integer", "number", "boolean"}


def schema(name, about, params, required=None):
    props = {k: {"type": t if t in SIMPLE else "string"} for k, t in params.items()}
    return {"type": "function", "function": {"name": name, "description": about,
            "parameters": {"type": "object", "properties": props, "required": list(params) if required is None else required}}}


def random_tool(d):
    name = d.r.choice(VERBS) + "_" + d.word() if d.chance(0.8) else d.word() + d.r.choice(("_tool", "_info", "", "_" + d.word()))
    params = {}
    for _ in range(d.r.choice((0, 1, 1, 2, 2, 3, 4))):
        params[d.r.choice(PARAMS) if d.chance(0.6) else d.word()] = d.r.choice(("string", "string", "integer", "number", "boolean"))
    about = d.r.choice(("{v} the {n}.", "A tool that can {v} a {n}.", "Use it to {v} {n}.")).format(v=name.split("_")[0], n=name.split("_")[-1]).capitalize()
    return name, about, params


def args_text(d, args):
    form = d.r.choice(("{k} {v}", "{k} {v}", "{k} = {v}", "{k} set to {v}", "{k}: {v}", "{k} \"{v}\""))
    show = lambda v: ("true" if v else "false") if isinstance(v, bool) else str(v)
    out = [form.format(k=k, v=show(v)) for k, v in args.items()]
    return "no arguments" if not out else out[0] if len(out) == 1 else ", ".join(out[:-1]) + " and " + out[-1]


def ask(d, kn=None):
    """One wish: (schema, question, call, result, answer)."""
    if kn or d.chance(0.55):
        name, about, params, forms, res, ans = kn or d.r.choice(KNOWN)
        args = {k: value(d, t) for k, t in params.items()}
        shown = {k: ("on" if v else "off") if isinstance(v, bool) else v for k, v in args.items()}
        q = d.say(forms).format(**shown)
        result = res(d)
        return schema(name, about, params), q, {"name": name, "arguments": args}, result, ans.format(**{**shown, **result})
    name, about, params = random_tool(d)
    args = {k: value(d, t) for k, t in params.items()}
    opt = [k for k in params if d.chance(0.15)]
    args = {k: v for k, v in args.items() if k not in opt}
    a = args_text(d, args)
    q = d.say(WANT).format(t=name, a=a, A=a[0].upper() + a[1:])
    result = {d.r.choice(("result", "value", "answer", "output", d.word())): d.r.choice((d.word, d.number, d.code, d.name, lambda: d.words(3)))()}
    v = next(iter(result.values()))
    return (schema(name, about, params, [k for k in params if k not in opt]), q, {"name": name, "arguments": args}, result,
            d.r.choice(("The result is {v}.", "{t} gave {v}.", "The answer is {v}.")).format(v=v, t=name))


def tool_list(d, have, n=None):
    out = list(have)
    names = {t["function"]["name"] for t in have}
    for _ in range(d.r.choice((0, 0, 1, 1, 2, 3, 5, 8)) if n is None else n):
        k = d.r.choice(KNOWN)
        t = schema(k[0], k[1], k[2]) if d.chance(0.6) else schema(*random_tool(d))
        if t["function"]["name"] not in names:
            names.add(t["function"]["name"])
            out.append(t)
    d.r.shuffle(out)
    return out


def show_calls(calls):
    return " and ".join(f"{c['name']} with " + (", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in c["arguments"].items()) or "no arguments") for c in calls)


def base(d, messages, answer, check, reasoning, tools, calls=None):
    return {"skill": "tools", "system": None, "messages": messages, "tools": tools, "think": False, "reasoning": reasoning,
            "answer": answer, "calls": calls, "check": check}


def several(d):
    """Several calls, or two different wishes, in one request."""
    return case(d, d.r.uniform(0.14, 0.38))


def case(d, x=None):
    """x chooses the form; tests of the skill itself leave out requests for several calls, which are a skill of their own."""
    if x is None:
        x = d.r.random()
        if d.held and 0.14 <= x < 0.38:
            x += 0.3
    usr = lambda t: {"role": "user", "content": t}
    if x < 0.14:                                       # nothing fits
        import skills_cases as S
        c = d.r.choice((S.chat.simple, lambda q: S.recall(q, 0)) if d.held else (S.chat.simple, S.copy, S.chat.simple, lambda q: S.recall(q, 0), S.story_case))(d)
        have = tool_list(d, [ask(d)[0]])
        return {**c, "skill": "tools", "tools": have, "reasoning": c["reasoning"] + d.r.choice((" No tool is needed.", " I do not need a tool."))}
    sch, q, call, result, ans = ask(d)
    schemas, calls, results = [sch], [call], [result]
    if x < 0.30:                                       # several calls
        kn = d.r.choice([k for k in KNOWN if k[0] in ("get_weather", "get_time", "get_price", "find_person", "read_file", "set_timer")])
        n = d.r.choice((2, 2, 3))
        key = next(iter(kn[2]))
        vals = []
        while len(vals) < n:
            v = value(d, kn[2][key])
            if v not in vals:
                vals.append(v)
        both = ", ".join(map(str, vals[:-1])) + " and " + str(vals[-1])
        q = d.say(kn[3]).format(**{key: both})
        schemas, calls = [schema(*kn[:3])], [{"name": kn[0], "arguments": {key: v}} for v in vals]
        results = [kn[4](d) for _ in vals]
        ans = " ".join(kn[5].format(**{key: v}, **r) for v, r in zip(vals, results))
    elif x < 0.38:                                     # two different wishes
        sch2, q2, call2, res2, ans2 = ask(d)
        if sch2["function"]["name"] != sch["function"]["name"]:
            q = q.rstrip(".") + d.r.choice((". Then: ", ". Also: ", ". And also: ")) + q2
            schemas.append(sch2)
            calls.append(call2)
            results.append(res2)
            ans = ans + " " + ans2
    have = tool_list(d, schemas)
    why = d.r.choice(("I need {s}.", "The user wants something that a tool can do. I call {s}.", "I will call {s}.")).format(s=show_calls(calls))
    history = []
    if d.chance(0.15):
        history = [usr(d.r.choice(("Hi", "Hello", "Hello!"))), {"role": "assistant", "content": "Hello! How can I help you?", "weight": 0.1}]
    if x < 0.70:
        text = d.r.choice(("Let me check.", "One moment.", "I will look.")) if d.chance(0.06) else ""
        return base(d, history + [usr(q)], text, {"calls": calls}, why, have, calls)
    msgs = history + [usr(q), {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": why if d.chance(0.5) else "", "weight": 0.3}]
    for r in results:
        plain = len(r) == 1 and d.chance(0.3)
        msgs.append({"role": "tool", "content": str(next(iter(r.values()))) if plain else json.dumps(r, ensure_ascii=False)})
    if d.chance(0.08):
        for m in msgs:
            if m["role"] == "tool":
                m["content"] = json.dumps({"error": d.r.choice(("not found", "timeout", "no access", "failed"))})
        err = json.loads(msgs[-1]["content"])["error"]
        return base(d, msgs, f"The tool failed: {err}.", {"contains": [err]}, f"The tool gave an error: {err}. I tell the user.", have)
    want = [str(v) for r in results for v in r.values() if str(v) in ans]
    return base(d, msgs, ans, {"contains": want}, "The tool answered. " + d.r.choice(("I tell the user.", "Now I can answer.")), have)


def same(got, want):
    """Arguments as a parser may give them: typed by the schema or as text."""
    if isinstance(want, str):
        return str(got).strip() == want
    if isinstance(want, bool):
        return got is want or str(got).lower() == str(want).lower()
    try:
        return float(got) == float(want)
    except (TypeError, ValueError):
        return False
