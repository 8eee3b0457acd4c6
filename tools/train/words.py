"""Word lists of the training generators and the skill tests, and the split into train and held-out halves.

Standard library only. Training leaves out every word with crc32(word) % 8 == 0, and the last fifth of a list of wordings. Tests
draw the held-out names of people and wordings that training never saw: of a list that combines parts into many wordings the
held-out fifth, else a known clause inside a frame kept for the tests (skills_cases.HELD_FRAMES). Common nouns, cities and the
like are those of training; codes, numbers and made-up words are new every time.
"""
import itertools
import os
import random
import zlib

L = lambda s: s.split()
NAMES = L("""Tom Anna Ben Mia Sam Lucy Max Ella Leo Ruby Jack Rosa Finn Clara Hugo Nora Oscar Ivy Theo Maya Felix Alice Milo Lena
Jonas Greta Paul Emma Noah Zoe Luca Sara Peter Nina Omar Layla Ravi Priya Kenji Yuki Pablo Elena Marco Sofia Ahmed Amina Kofi Abena
Igor Olga Sven Astrid Pierre Colette Hans Heidi Diego Carmen Tariq Leila Bruno Bianca Victor Vera Simon Stella Oliver Olive Henry
Hazel George Grace Arthur Ada Edwin Edith Frank Flora Gus Gemma Harold Hanna Ian Irene Jasper June Karl Kate Liam Lola Martin Martha
Nico Nadia Otto Opal Quinn Rosie Rufus Ramona Seth Selma Toby Tess Umar Una Wally Wendy Xavier Yusuf Yara Zane Zelda Basil Birgit
Cedric Cora Dario Daisy Elias Esme Fergus Freya Gavin Gilda Idris Inga Jerome Jade Kiran Kira Lars Lydia Moses Mabel Nils Nell Pedro
Petra Ralph Rita Silas Sonia Tobias Thea Vince Viola Walter Willa Amos Beth Cliff Dora Emil Fay Glen Hope Ike Joy""")
ANIMALS = L("""fox rabbit bear mouse owl frog duck cat dog hedgehog squirrel badger otter mole turtle hen goat sheep pony donkey
sparrow robin crow goose swan beaver deer wolf lion tiger elephant monkey parrot penguin seal whale crab snail bee ant spider
butterfly ladybird lizard kitten puppy lamb calf piglet chick hamster bat heron magpie raccoon panda koala camel zebra giraffe""")
COLOURS = L("red blue green yellow orange purple pink brown black white grey silver gold teal violet amber crimson navy olive cream")
CITIES = L("""Rome Oslo Paris London Berlin Madrid Lisbon Vienna Prague Dublin Athens Warsaw Zurich Geneva Milan Turin Naples Lyon Nice
Hamburg Munich Cairo Lagos Nairobi Tokyo Osaka Kyoto Seoul Delhi Mumbai Sydney Perth Toronto Boston Chicago Denver Dallas Seattle Lima
Bogota Quito Havana Tunis Riga Tallinn Vilnius Helsinki Bergen Malmo Ghent Antwerp Bruges Porto Seville Granada Bilbao Krakow Split
Tirana Sofia Varna Ankara Izmir Baku Tbilisi Kazan Minsk Odessa""")
FOODS = L("""bread soup cheese apples pears plums honey jam porridge pancakes pie cake biscuits carrots beans rice noodles eggs
tomatoes berries cherries nuts milk tea cocoa lemonade butter potatoes pumpkin corn""")
THINGS = L("""lantern kite drum boat basket bell blanket book boot bottle bowl box broom brush bucket button candle cart chair clock coat
coin compass cup cushion door feather fiddle flag flute fork gate glove hammer hat horn jar kettle key ladder lamp letter map marble
mirror needle net paint pan pebble pencil piano pillow pipe plate puppet purse puzzle quilt rake ring rope saddle sail scarf seed shell
shoe shovel sled spade spoon stone stool sword telescope tent ticket top torch train trumpet umbrella vase violin wagon wheel whistle
window wheelbarrow ribbon shawl stove teapot thimble trunk tulip wreath anchor acorn balloon barrel bench bicycle crown crayon doll""")
ADJ = L("""small big old young brave shy clever quiet kind funny merry gentle curious careful proud lonely patient cheerful sleepy
lazy busy honest bold calm tiny tall round bright soft warm cold""")
DAYS = L("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = L("January February March April May June July August September October November December")
JOBS = L("""baker farmer teacher sailor doctor gardener pilot painter singer driver nurse builder miller tailor cook fisher shepherd
carpenter postman librarian plumber dentist dancer writer potter weaver blacksmith clown""")
MODS = L("""locker door gate bike garage safe office wifi library garden boat train class cellar attic shed studio kitchen school gym
hotel parking luggage ticket member customer account router printer server laptop phone tablet tower museum archive warehouse cabin
ferry bus flight hall stage team project club vault drawer cupboard mailbox alarm lift camp harbour market bank""")
BASES = L("code number password PIN key word name id tag token phrase combination")
HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = open(os.path.join(HERE, "words.txt"), encoding="utf-8").read().split()
SYL1 = L("b br c ch d dr f fl g gr h j k kl l m n p pl qu r s sh st t tr v w z th bl cr")
SYL2 = L("a e i o u a e i o ai ee oa ou ia")
SYL3 = L("n r l s m t x k nd rt sh ck lt ng")


MANY = 40                       # wordings: a list this long combines parts, and its held-out fifth is like the rest


def is_held(word):
    return zlib.crc32(word.encode()) % 8 == 0


_split = {}


def part(lst, held):
    """The train or the held-out words of a list."""
    k = (id(lst), held)
    if k not in _split:
        p = [w for w in lst if is_held(w) == held]
        _split[k] = (p if len(p) >= 2 else lst, lst)
    return _split[k][0]


def combine(*parts):
    """Wordings as all combinations of their parts, in a fixed random order (so that the held-out fifth is a mixed one)."""
    out = [" ".join(" ".join(p).split(" ")).strip() for p in itertools.product(*parts)]
    out = list(dict.fromkeys(" ".join(x for x in t.split(" ") if x) for t in out))
    random.Random(7).shuffle(out)
    return out


class Draw:
    """A seeded source of names, words, values and wordings from one side of the split."""

    soup = None                 # training sets it to the tokens of the vocabulary, so that each of them is copied

    def __init__(self, rng, held=False):
        self.r, self.held = rng, held

    def of(self, lst):
        return self.r.choice(part(lst, self.held and lst is NAMES))

    def say(self, forms):
        """One of several wordings; training leaves out the last fifth (at least one, if there are three), tests draw it."""
        n = max(1, len(forms) // 5) if len(forms) >= 3 else 0
        return self.r.choice(forms[len(forms) - n:] if self.held and len(forms) >= MANY else forms[:len(forms) - n])

    def chance(self, p):
        return self.r.random() < p

    def name(self):
        return self.of(NAMES) if self.chance(0.7) else self.coined().capitalize()

    def coined(self):
        r = self.r
        w = "".join(r.choice(SYL1) + r.choice(SYL2) for _ in range(r.choice((1, 2, 2, 3))))
        return w + (r.choice(SYL3) if r.random() < 0.6 else "")

    def word(self):
        x = self.r.random()
        if self.soup and x < 0.15:
            return "".join(self.r.choice(self.soup) for _ in range(self.r.choice((2, 2, 3))))
        x = self.r.random()
        return self.of(WORDS) if x < 0.8 else self.of(THINGS) if x < 0.9 else self.coined()

    def words(self, n):
        return " ".join(self.word() for _ in range(n))

    def digits(self, a=3, b=8):
        n = self.r.randint(a, b)
        return "".join(self.r.choice("0123456789") for _ in range(n))

    def number(self, top=1000):
        return self.r.randint(0, self.r.choice((10, 30, 100, top)))

    def code(self):
        r = self.r
        A, D = "ABCDEFGHJKLMNPQRSTUVWXYZ", "0123456789"
        k = r.randrange(7)
        if k == 0:
            return "".join(r.choice(A + D) for _ in range(r.randint(4, 8)))
        if k == 1:
            return "".join(r.choice(A) for _ in range(r.randint(1, 3))) + "-" + self.digits(2, 5)
        if k == 2:
            return self.word() + "-" + self.word()
        if k == 3:
            return self.word() + self.digits(1, 4)
        if k == 4:
            return "-".join("".join(r.choice(A + D) for _ in range(r.randint(2, 4))) for _ in range(r.randint(2, 3)))
        if k == 5:
            return self.word().capitalize() + "-" + self.digits(2, 4)
        return "".join(r.choice(A.lower() + D) for _ in range(r.randint(5, 10)))

    def value(self):
        """(text, kind) of something to remember."""
        x = self.r.random()
        if x < 0.42:
            return self.digits()
        if x < 0.62:
            return self.code()
        if x < 0.82:
            return self.word()
        if x < 0.92:
            return self.name()
        return self.words(self.r.randint(2, 3))
