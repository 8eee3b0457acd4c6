"""Stories from the plot grammar, and the requests that ask for them. Standard library only."""
from words import NAMES, ANIMALS, THINGS, FOODS, part
import story_plots as S

PEOPLE = [("girl", "she"), ("boy", "he"), ("baker", "he"), ("farmer", "she"), ("sailor", "he"), ("princess", "she"),
          ("prince", "he"), ("king", "he"), ("queen", "she"), ("robot", "he"), ("dragon", "he"), ("giant", "he"),
          ("witch", "she"), ("knight", "he"), ("child", "she"), ("snowman", "he"), ("fairy", "she"), ("wizard", "he"),
          ("pirate", "she"), ("fisherman", "he"), ("gardener", "she"), ("ghost", "he"), ("monster", "he"), ("teacher", "she")]
GENDER = dict(PEOPLE)
TRAITS = """small big old young brave shy clever quiet kind funny merry gentle curious careful proud lonely patient cheerful
sleepy lazy busy honest bold calm tiny hungry friendly forgetful dreamy""".split()
PRON = {"he": ("he", "him", "his"), "she": ("she", "her", "her")}


def art(w):
    return ("an " if w[0] in "aeiou" else "a ") + w


def is_food(w):
    return w.endswith("s") and w in FOODS or w in ("bread", "soup", "cheese", "honey", "jam", "porridge")


def with_article(o):
    return "some " + o if is_food(o) else art(o)


def gender(name):
    """NAMES alternates: he, she; coined names are either."""
    return ("he", "she")[NAMES.index(name) % 2] if name in NAMES else None


def named(d, g, taken=()):
    pool = [n for n in part(NAMES, d.held) if n not in taken and (not g or gender(n) == g)]
    return d.r.choice(pool)


def fields(d, hero, thing, friend=None, name=None, place=None, trait=None):
    """All the words of one story."""
    r = d.r
    f = {}
    n = name or named(d, GENDER.get(hero))
    he, him, his = PRON[GENDER.get(hero) or gender(n) or r.choice(("he", "she"))]
    fk = friend or d.of(ANIMALS)
    while fk == hero and not friend:
        fk = d.of(ANIMALS)
    fn = named(d, GENDER.get(fk), (n,))
    fhe, fhim, fhis = PRON[GENDER.get(fk) or gender(fn)]
    a, fa = trait or r.choice(TRAITS), r.choice(TRAITS)
    x, y, x2 = r.sample([q for q in ANIMALS if q not in (hero, fk)], 3)
    p = place or r.choice(S.PLACES)
    f.update(N=n, k=hero, he=he, him=him, his=his, He=he.capitalize(), His=his.capitalize(), o=thing,
             O=with_article(thing), OC=with_article(thing).capitalize(), F=fn, fk=fk, fhe=fhe, fhim=fhim, fhis=fhis,
             fHe=fhe.capitalize(), p=p, P=p[0].upper() + p[1:], a=a, a_a=art(a), A_a=art(a).capitalize(),
             fa_a=art(fa), x=x, y=y, x2=x2, his2="its", spot=r.choice(S.SPOTS), season=r.choice(("spring", "summer", "autumn", "winter")))
    f["trouble"], use = r.choice(S.KIND_OF.get(thing, S.PLAIN))
    f["use"] = use.format(**f)
    return f


def story(d, hero=None, thing=None, friend=None, name=None, place=None, plot=None, trait=None):
    """One story; hero and thing may be any nouns. Returns (text, fields)."""
    r = d.r
    hero = hero or (d.of(ANIMALS) if r.random() < 0.65 else r.choice(PEOPLE)[0])
    thing = thing or d.of(THINGS)
    f = fields(d, hero, thing, friend, name, place, trait)
    plot = plot or r.choice(list(S.PLOTS))
    paras = [[r.choice(S.OPEN)], [], [], []]
    if r.random() < 0.35:
        paras[0].append(r.choice(S.WEATHER))
    paras[0].append(r.choice(S.FRIEND))
    if plot in S.NEED_OWN:
        paras[0].append(r.choice(S.OWN))
    beats = [r.choice(b) for b in S.PLOTS[plot]]
    cut = len(beats) // 2
    paras[1] = beats[:cut]
    paras[2] = beats[cut:]
    paras[2].append(r.choice(S.END))
    text = "\n\n".join(" ".join(p) for p in paras if p).format(**f)
    return text, f


ASK_ABOUT = ["Tell me a story about {A}.", "Tell me a short story about {A}.", "Write a story about {A}.", "Please tell me a story about {A}.",
             "Can you tell me a story about {A}?", "I would like a story about {A}.", "Write a short children's story about {A}.",
             "Make up a story about {A}.", "Could you write a little story with {A}?", "A story about {A}, please.",
             "Give me a bedtime story about {A}.", "Write a tale about {A}.", "tell me a story about {A}", "Story: {A}.",
             "Do you know a story about {A}?", "Invent a short story about {A}, please.", "I want to hear a story about {A}."]
ASK_ANY = ["Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Write a short story.", "Please tell me a story.",
           "I cannot sleep. Tell me a story.", "Tell me a bedtime story.", "Write a story for children.", "A story, please!",
           "Once more, tell me a story.", "Tell a story.", "Write me a little story."]


def request(d):
    """(user text, story text, fields, reasoning)."""
    r = d.r
    kind = r.random()
    hero = d.of(ANIMALS) if r.random() < 0.65 else r.choice(PEOPLE)[0]
    thing = d.of(THINGS) if r.random() < 0.75 else d.of(FOODS) if r.random() < 0.2 else r.choice(part(list_nouns(), d.held))
    if kind < 0.15:
        text, f = story(d)
        ask = d.say(ASK_ANY)
        plan = f"The user wants a story. I can tell one about {f['N']} the {f['k']} and {f['O']}."
        return ask, text, f, plan
    friend = name = place = trait = None
    about = f"{art(hero)} and {with_article(thing)}"
    if kind > 0.93:
        place = r.choice(S.PLACES)
        about = f"{art(hero)} {place}"
    elif kind > 0.85:
        friend = d.of(ANIMALS)
        about = f"{art(hero)} and {art(friend)}"
    elif kind > 0.75:
        name = d.name()
        about = f"{art(hero)} named {name} and {with_article(thing)}"
    elif kind > 0.65:
        name = d.name()
        about = f"{art(hero)} called {name}"
    elif kind > 0.58:
        trait = r.choice(TRAITS)
        about = f"{art(trait)} {hero}"
    elif kind > 0.53:
        about = f"{with_article(thing)}"
    elif kind > 0.48:
        about = f"{art(hero)} who {r.choice(('finds', 'loses', 'loves', 'wants'))} {with_article(thing)}"
    text, f = story(d, hero, thing, friend, name, place, trait=trait)
    if "who finds" in about:
        text, f = story(d, hero, thing, plot="found")
    elif "who loses" in about:
        text, f = story(d, hero, thing, plot="lost")
    plan = d.r.choice(("The user wants a story about {A}. The {k} can be called {N}. A friend, {F} the {fk}, should help.",
                       "A story about {A}. Hero: {N} the {k}. Friend: {F} the {fk}. It should end well.",
                       "I will tell a short story about {A}. The hero is {N}.")).format(A=about, **f)
    return d.say(ASK_ABOUT).format(A=about), text, f, plan


MORE_THINGS = """castle garden flower leaf feather egg treasure toy ball robot rocket star moon cloud rainbow picture game song dance
secret message present teddy snowflake cave bridge house shop ship lighthouse""".split()


def list_nouns():
    return MORE_THINGS
