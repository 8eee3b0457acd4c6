"""The sentences of the plot grammar: openings, twelve plots as lists of beats, uses of things, endings.

{N} hero, {k} what the hero is, {he} {him} {his}, {o} the thing, {O} with article, {F} friend, {fk} what the friend is,
{fhe} {fhim} {fhis}, {p} place, {a} a trait. Own writing; standard library only.
"""

OPEN = [
    "Once upon a time, there was {a_a} {k} named {N}. {N} lived {p}.",
    "{A_a} {k} named {N} lived {p}.",
    "There was once {a_a} {k} whose name was {N}. {His} home was {p}.",
    "{P}, there lived {a_a} {k}. {His} name was {N}.",
    "{N} was {a_a} {k} who lived {p}.",
    "In a little house {p} lived {N}, {a_a} {k}.",
    "One {season} morning, {a_a} {k} named {N} woke up {p}.",
    "Everybody {p} knew {N}, the {a} {k}.",
]
FRIEND = [
    "{His} best friend was {F}, {fa_a} {fk}.",
    "{N} had a good friend, {fa_a} {fk} called {F}.",
    "Next door lived {F} the {fk}, and the two of them did everything together.",
    "Every day {he} played with {F}, {fa_a} {fk}.",
]
OWN = [
    "More than anything, {N} loved {his} {o}.",
    "{N} had {O} that {his} grandmother had given {him}.",
    "The thing {he} liked best in the whole world was {his} {o}.",
    "On {his} birthday {N} had been given {O}. It was not new, but {he} thought it was wonderful.",
    "{N} took {his} {o} with {him} wherever {he} went.",
]
PLACES = ["at the edge of a forest", "by a quiet lake", "on a green hill", "in a small village", "near the sea",
          "beside an old mill", "in a valley between two mountains", "on a little farm", "under a big oak tree",
          "at the end of a long road", "in a town with red roofs", "by a slow river", "behind the garden wall",
          "on a small island", "in a snowy land"]
WEATHER = ["The sun was shining.", "It was a windy day.", "Rain fell softly on the leaves.", "There was frost on the grass.",
           "The sky was full of white clouds.", "It was warm, and the bees were humming.", "A thin mist lay over the fields."]

# what a thing can do when somebody is in need: (trouble, how the thing helps)
LIGHT = [("got lost in the dark", "{N} held up the {o}, and its light shone far between the trees. \"Come to the light!\" {he} called. Soon {F} came running towards it."),
         ("fell into a dark hole", "{N} held the {o} over the hole. In its light they saw roots in the wall, as good as a ladder, and {F} climbed up one step at a time.")]
SOUND = [("got lost in the fog", "{N} stood on a stone and played the {o} as loudly as {he} could. {F} heard it through the fog and followed the sound all the way home."),
         ("could not stop crying", "{N} took the {o} and played a funny little tune. First {F} stopped crying, then {fhe} smiled, and then {fhe} danced.")]
RIDE = [("hurt a foot far from home", "{N} fetched the {o}. \"Sit down, I will bring you home,\" {he} said. It was hard work, but step by step they came home."),
        ("was stuck on the other side of the water", "{N} thought for a while. Then {he} used the {o} to get across, and together they came back safe and dry.")]
WARM = [("was shivering in the snow", "{N} wrapped the {o} around {F}. Slowly {F} grew warm again. \"That is the warmest {o} in the world,\" {fhe} said."),
        ("was caught in a cold rain", "{N} held the {o} over both of them, and so they walked home, close together and almost dry.")]
FOOD = [("had nothing to eat", "{N} broke the {o} in two and gave {F} the bigger half. It was not much, but it was enough for both."),
        ("was too hungry to walk home", "{N} opened {his} bag. \"I was saving this for later,\" {he} said, and shared the {o} with {F}. After that they could both walk again.")]
TOOL = [("was stuck in the mud", "{N} held out the {o}. \"Hold on tight!\" {he} said. {He} pulled and pulled, and with a loud plop {F} came free."),
        ("was shut in the old barn", "{N} pushed the {o} under the door and pressed with all {his} strength. The door creaked and moved, just enough for {F} to slip out.")]
PLAIN = [("was very sad and would not say why", "{N} put the {o} into {F}'s hands. \"You can keep it until you feel better,\" {he} said. {F} held the {o} for a long time, and then {fhe} began to smile."),
         ("was ill in bed", "{N} brought the {o} and put it where {F} could see it. Every day {he} told a new story about the {o}, and every day {F} felt a little better.")]
KIND_OF = {}
for words, uses in (("lantern candle lamp torch lighthouse fire star moon mirror firefly", LIGHT),
                    ("drum bell flute horn fiddle trumpet whistle violin piano song guitar harp", SOUND),
                    ("boat cart sled train wagon wheelbarrow bicycle raft ship car truck", RIDE),
                    ("blanket coat scarf quilt shawl cushion pillow tent umbrella hat jumper cape", WARM),
                    ("bread soup cheese apples pears plums honey jam porridge pancakes pie cake biscuits carrots beans nuts apple pear berries cookie", FOOD),
                    ("rope ladder rake spade shovel broom hammer net saddle fork anchor hook stick", TOOL)):
    for w in words.split():
        KIND_OF[w] = uses

PLOTS = {
    "lost": [
        ["One day the {o} was gone.", "One morning {N} looked for the {o}, and it was not there.", "But one evening, when {N} came home, {he} could not find the {o} anywhere."],
        ["{N} looked under the bed. {He} looked behind the door. There was no {o}.", "{He} searched the whole house from top to bottom, but the {o} was not there.", "{He} turned out every box and every bag. Nothing!"],
        ["\"Where can it be?\" {he} said, and a tear ran down {his} face.", "{N} sat down on the step and felt very sad.", "\"I will never see my {o} again,\" {he} said quietly."],
        ["{F} sat down beside {him}. \"Let us think,\" said {F}. \"Where did you have it last?\"", "Then {F} came by. \"Do not cry,\" {fhe} said. \"Two can look better than one.\"", "\"I will help you,\" said {F}. \"We will walk back the way you came.\""],
        ["They walked along the path and looked behind every bush.", "Together they went down to the water and up to the hill, step by step.", "They asked the old {x} on the road. \"Look near the {spot},\" said the {x}."],
        ["And there, beside the {spot}, lay the {o}!", "At last {F} gave a shout. The {o} was lying in the grass by the {spot}.", "Something was peeping out from behind the {spot}. It was the {o}!"],
        ["\"I put it down when I stopped to rest, and I forgot it,\" said {N} and laughed.", "{N} picked up the {o} and hugged it. Then {he} hugged {F} too.", "{N} was so happy that {he} jumped in the air. \"Thank you, {F}!\" {he} cried."],
    ],
    "found": [
        ["One day, {N} found {O} by the {spot}.", "While {he} was walking past the {spot}, {N} saw something in the grass. It was {O}.", "By the {spot}, half under the leaves, lay {O}. {N} picked it up."],
        ["It was the finest {o} {he} had ever seen. \"I would like to keep it,\" thought {N}.", "{He} looked around, but nobody was there. The {o} felt good in {his} hands.", "\"How lucky I am!\" {he} said. But then {he} thought again. Somebody must have lost it."],
        ["{N} asked {F}, \"Is this your {o}?\" But {F} shook {fhis} head.", "{He} showed it to {F}. \"It is not mine,\" said {F}, \"but somebody is surely looking for it.\"", "\"Whose is it?\" asked {F}. \"We should find out,\" said {N}."],
        ["So they went from house to house and asked. The {x} said no, and the {y} said no.", "First they asked the {x}. \"Not mine,\" said the {x}. Then they asked the {y}. \"Not mine,\" said the {y}.", "They knocked at every door. Nobody had lost {O}."],
        ["At the last house sat an old {x2}, who looked very sad. When the old {x2} saw the {o}, {his2} eyes began to shine.", "Then they met an old {x2} who was searching in the grass. \"My {o}!\" cried the old {x2}.", "Behind the hill they heard somebody sigh. It was an old {x2}. \"I have lost my {o}, and I had it all my life,\" said the old {x2}."],
        ["{N} gave the {o} back at once, and it did not feel hard at all.", "\"Here it is,\" said {N}, and put the {o} into the old {x2}'s hands.", "{N} held out the {o}. The old {x2} laughed with joy."],
        ["To thank them, the old {x2} baked a cake, and they all ate it together.", "From that day on, {N} and {F} came to visit the old {x2} every week.", "\"You are honest,\" said the old {x2}. \"Come and use the {o} whenever you like.\""],
    ],
    "share": [
        ["But {N} did not like to share the {o}.", "Nobody else was allowed to touch it.", "\"It is mine, only mine,\" {he} used to say."],
        ["One day {F} asked, \"May I hold your {o} for a moment?\" \"No,\" said {N}.", "{F} asked to borrow the {o}. \"You might break it,\" said {N}, and turned away.", "When {F} came to play, {N} hid the {o} behind {his} back."],
        ["{F} went home alone.", "{F} said nothing, but {fhe} looked sad and went away.", "So {F} walked off to play with the others."],
        ["{N} sat alone with the {o}. The day was long and quiet.", "Now {N} had the {o} all to {him}self, but it was no fun at all.", "{N} looked at the {o}. It was as pretty as before, but {he} felt lonely."],
        ["At last {he} took the {o} and ran to {F}'s house.", "Then {N} understood. {He} ran down the road and knocked at {F}'s door.", "\"What good is {O}, if nobody plays with me?\" {he} thought, and {he} went to find {F}."],
        ["\"I am sorry,\" {he} said. \"Here, you take it first.\"", "\"Please come and play,\" {he} said. \"You can have the first turn.\"", "\"I was not kind,\" said {N}. \"Let us share it.\""],
        ["{F} smiled, and they played with the {o} until the stars came out.", "They took turns all afternoon, and it was the best day of the week.", "And do you know what? With two, the {o} was twice as much fun."],
    ],
    "rescue": [
        ["One day {F} {trouble}.", "One evening something bad happened. {F} {trouble}.", "Then, one cold day, {F} {trouble}."],
        ["\"Help!\" called {F}. {N} heard it and pricked up {his} ears.", "{N} heard a small voice far away. It was {F}!", "When {F} did not come to supper, {N} began to worry and went out to look."],
        ["{N} was a little afraid, but {he} did not stop.", "{His} heart beat fast. \"I must be brave,\" {he} said.", "\"Wait, I am coming!\" {he} called."],
        ["Then {he} remembered {his} {o}.", "What could {he} do? {He} had only {his} {o} with {him}.", "{N} ran home as fast as {he} could and fetched the {o}."],
        ["{use}"],
        ["\"You came for me!\" said {F}. \"Of course,\" said {N}. \"That is what friends do.\"", "\"Thank you,\" said {F}. \"Without you and your {o} I do not know what I would have done.\"", "{F} hugged {N} for a long time."],
    ],
    "mend": [
        ["One day the {o} broke. There was a loud crack, and then it was quiet.", "But one morning {N} dropped the {o}, and it broke.", "Then a strong wind came and knocked over the {o}. Now it was broken."],
        ["{N} tried to mend it with string, but the string came loose.", "{He} tried to put the pieces together, but they fell apart again.", "{He} tried once, {he} tried twice, but {he} could not mend it."],
        ["\"It is no use,\" said {N}. {He} wanted to throw the {o} away.", "{N} was angry and kicked a stone. That did not help at all.", "\"I cannot do it,\" {he} said, and {his} voice was very small."],
        ["\"Let us ask the old {x},\" said {F}. \"The old {x} can mend anything.\"", "{F} came and looked at the pieces. \"Not so fast,\" {fhe} said. \"I will hold, and you will tie.\"", "\"Try it slowly,\" said {F}. \"One piece after the other.\""],
        ["They worked all afternoon. First it went wrong, then it went a little better.", "They took glue, a bit of wood and a lot of time.", "Slowly, slowly, the pieces came together."],
        ["In the evening the {o} was whole again. There was a thin line where it had been broken.", "At last it was done. The {o} looked almost like new.", "When the moon came up, the {o} was mended."],
        ["\"I like it even better now,\" said {N}, \"because we made it together.\"", "{N} ran a finger over the line and smiled. \"Now it has a story,\" {he} said.", "{N} was proud. Now {he} knew how to mend things."],
    ],
    "learn": [
        ["But {N} did not know how to use the {o}.", "There was only one trouble: {he} could not use the {o} very well.", "\"You are too small for {O},\" said the others, and they laughed."],
        ["The first time, everything went wrong.", "{He} tried it behind the house, where nobody could see. It went badly.", "{N} tried and fell flat on {his} nose."],
        ["\"I will try again tomorrow,\" {he} said.", "{He} wanted to give up, but {F} said, \"Nobody can do it on the first day.\"", "\"Once more,\" said {F}. \"I will watch you.\""],
        ["So {N} practised every morning. On Monday it went badly. On Tuesday it went a little better.", "Day after day {he} practised, in the sun and in the rain.", "{He} practised before breakfast and after supper."],
        ["Then came the day of the village fair. Everyone was there.", "At the end of the summer there was a feast, and everybody came.", "One Sunday all the neighbours met on the green."],
        ["{N} took a deep breath and showed what {he} could do with the {o}. It went perfectly.", "{N} stepped forward with the {o}. {His} knees shook, but {his} hands did not.", "Now {N} took the {o}, and this time everything went right."],
        ["Everybody clapped, and {F} clapped loudest of all.", "\"How did you learn that?\" they asked. \"A little every day,\" said {N}.", "The ones who had laughed came and asked, \"Can you teach us?\" And {N} did."],
    ],
    "gift": [
        ["Soon it would be {F}'s birthday, and {N} had no present.", "{N} wanted to give {F} something special for {fhis} birthday.", "\"Tomorrow is {F}'s birthday,\" thought {N}. \"What can I give?\""],
        ["In the window of the little shop {he} saw {O}. But {N} had no money.", "At the market there was {O}. It cost three coins, and {N} had only one.", "{He} knew that {F} had always wished for {O}."],
        ["So {N} helped the {x} to carry wood all day.", "\"I can work,\" said {N}, and {he} swept the yard of the {x}.", "{He} helped the {x} to pick apples until {his} arms were tired."],
        ["In the evening the {x} gave {him} two shiny coins.", "\"You have worked well,\" said the {x}, and paid {him}.", "For that, {he} got what {he} needed."],
        ["{N} bought the {o} and wrapped it in green leaves.", "{He} ran to get the {o} and tied a ribbon around it.", "At last {N} had the {o}. {He} hid it under {his} coat."],
        ["When {F} saw the {o}, {fhe} could not speak for joy.", "{F} opened the present. \"{OC}!\" {fhe} cried. \"How did you know?\"", "\"For me?\" asked {F}. \"For you,\" said {N}."],
        ["But the best thing was that they could use it together.", "\"The {o} is beautiful,\" said {F}, \"but you are the best present.\"", "That night {N} was tired and very happy."],
    ],
    "race": [
        ["One day there was a big race from the {spot} to the river.", "Every year there was a race around the hill, and the winner got {O}.", "\"Tomorrow is the great race!\" said the {x}. \"The prize is {O}.\""],
        ["{N} wanted to win. So did a proud {y}, who was very fast.", "\"I will win,\" said the proud {y}. \"All of you are slow.\"", "{N} was not the fastest, but {he} wanted to try."],
        ["One, two, three, go! They all ran as fast as they could.", "The race began, and the proud {y} was far ahead.", "At first {N} was the last of all."],
        ["Halfway, {N} saw {F} lying by the road. {F} had hurt {fhis} foot.", "Then {he} heard somebody cry. {F} had fallen, and all the others had run past.", "By the bridge sat {F}, who could not run any more."],
        ["{N} stopped. \"Lean on me,\" {he} said.", "\"A race is only a race,\" thought {N}, and {he} helped {F} up.", "{N} did not think about the race any more. {He} took {F} by the arm."],
        ["They came in last, side by side. The proud {y} had won and laughed at them.", "Slowly they walked over the line together, long after the others.", "When they came to the end, the sun was going down."],
        ["But the old {x} gave the {o} to {N}. \"You did not win the race,\" said the {x}, \"but you won a friend.\"", "Then everybody cheered for {N}, and the {o} went to {him}, for being kind.", "The {y} looked at the ground. \"You are better than I am,\" said the {y}, and gave {N} the {o}."],
    ],
    "journey": [
        ["One day the {x} said, \"Please bring this {o} to my sister on the other side of the hill.\"", "\"Who can bring the {o} to the old {x} on the hill?\" asked {F}. \"I can,\" said {N}.", "{N} had to bring {O} to {his} grandmother, who lived far away."],
        ["{N} put the {o} in a bag and set out. {F} came along.", "Early in the morning {N} and {F} started with the {o}.", "\"I will come with you,\" said {F}, and so they went together, and {N} carried the {o}."],
        ["First they came to a river. There was no bridge, so they jumped from stone to stone.", "First there was a deep wood. They held hands and sang, so that they would not be afraid.", "First they came to a high wall. {F} climbed on {N}'s back, and then {F} pulled {N} up."],
        ["Then a hungry {y} stood in the way. {N} gave the {y} {his} lunch, and the {y} let them pass.", "Then it began to rain. They kept the {o} dry under a big leaf.", "Then they lost the path. But {F} saw smoke far away, and they walked towards it."],
        ["\"I am tired,\" said {F}. \"Only a little more,\" said {N}, and took {F}'s bag too.", "Their feet were sore, but they did not give up.", "\"Shall we go back?\" asked {F}. {N} shook {his} head. \"We have promised.\""],
        ["When the first star came out, they saw a light in a window. They had arrived!", "At last they stood before the door and knocked.", "In the evening they came over the last hill, and there was the house."],
        ["There was warm soup, and the {o} got the best place on the table.", "\"You brought my {o} all that way?\" they heard. \"What brave friends you are!\"", "{N} gave over the {o}, and everybody was happy. That night they slept by the fire."],
    ],
    "noise": [
        ["One night {N} heard a strange noise. Tap, tap, tap.", "In the middle of the night there was a noise at the window. Scratch, scratch.", "When it was dark, something outside went boo, hoo, hoo."],
        ["{N} pulled the blanket over {his} head.", "{N} sat up. {His} heart went bump, bump.", "\"Is it a monster?\" whispered {N}."],
        ["But then {he} took {his} {o} and went to the door on tiptoe.", "\"I want to know what it is,\" {he} said. {He} took the {o} and crept outside.", "{N} held the {o} tight. With it {he} felt a little braver."],
        ["Tap, tap, tap. The noise came from behind the {spot}.", "There was something small behind the {spot}. It moved!", "The grass rustled near the {spot}. {N} went closer, one step, then another."],
        ["It was {F}! {fHe} could not sleep and wanted to see the stars.", "But it was only {F}, who had lost the way in the dark.", "Out came {F}. \"I am sorry,\" said {fhe}. \"I was afraid to be alone.\""],
        ["They both began to laugh.", "\"I thought you were a monster!\" said {N}, and they laughed until they had to sit down.", "\"And I thought that you were one!\" said {F}."],
        ["Then they sat down side by side with the {o} between them and looked at the moon.", "{N} let {F} hold the {o}, and they told each other stories until they fell asleep.", "After that, {N} was not afraid of noises any more."],
    ],
    "plant": [
        ["In spring {N} found a tiny seed. {He} put it into the earth beside {his} {o}.", "One day the wind brought a small seed to {N}'s door.", "The old {x} gave {N} a seed. \"It needs water and time,\" said the {x}."],
        ["Every day {he} looked. There was nothing but earth.", "{N} gave it water, and then {he} waited. And waited.", "\"When will it grow?\" {he} asked {F}. \"Soon,\" said {F}."],
        ["After a week {N} was angry. \"It is a bad seed,\" {he} said.", "{N} wanted to dig it up, but {F} said, \"Let it sleep a little longer.\"", "\"Nothing happens,\" said {N}, and {he} put {his} {o} down next to it so that the seed would not be alone."],
        ["Then one morning there was a green leaf, no bigger than a fingernail.", "And then, after a warm rain, something green looked out of the earth.", "One day {F} called, \"Come quickly! Look!\" There was a little green leaf."],
        ["A storm came in the night. {N} ran out and put the {o} in front of the plant, so that the wind could not break it.", "A goat came along and wanted to eat the leaf. {N} made a noise with the {o} and the goat ran away.", "When the sun was too hot, {N} used the {o} to give the plant some shade."],
        ["It grew and grew, higher than {N}, higher than the roof.", "In summer it had a yellow flower as big as a plate.", "By autumn it was a small tree with one red apple on it."],
        ["\"Good things need time,\" said {N}, and {F} nodded.", "{N} and {F} sat in its shade, with the {o} between them, and were glad that they had waited.", "All the neighbours came to look, and {N} gave a new seed to each of them."],
    ],
    "truth": [
        ["One day {N} borrowed {O} from {F}.", "{F} had {O}, and one day {fhe} lent it to {N}.", "\"You may take my {o},\" said {F}, \"but please be careful.\""],
        ["{N} was not careful. The {o} fell down and got a big crack.", "{He} played too wildly, and the {o} broke.", "{N} left it in the rain, and in the morning the {o} was spoiled."],
        ["{N} hid the {o} under a bush. \"Nobody will know,\" {he} thought.", "\"What shall I say?\" thought {N}. {He} hid the {o} behind the {spot}.", "{He} was afraid that {F} would be angry, so {he} hid it."],
        ["\"Where is my {o}?\" asked {F}. \"I do not know,\" said {N}. \"Perhaps the {y} took it.\"", "When {F} asked for the {o}, {N} said, \"The {y} has it.\"", "\"I have not seen your {o},\" said {N}, but {he} looked at {his} feet."],
        ["That night {N} could not sleep. {His} stomach hurt.", "{N} lay awake. The lie felt like a stone in {his} heart.", "All evening {he} felt bad, and supper did not taste good."],
        ["In the morning {he} went to {F} and told the truth. \"I broke your {o}, and I told a lie. I am sorry.\"", "At last {N} took the {o} and went to {F}. \"It was me,\" {he} said. \"I am very sorry.\"", "{N} ran to {F} before breakfast. \"I broke it,\" {he} said, \"and then I was afraid.\""],
        ["{F} was quiet for a moment. \"Thank you for telling me,\" {fhe} said. \"We can mend it together.\"", "\"I am sad about the {o},\" said {F}, \"but I am glad that you told me.\"", "{F} took {his} hand. \"{OC} can be mended,\" said {F}. \"Come, let us try.\""],
    ],
}
NEED_OWN = {"lost", "share", "rescue", "mend", "learn", "noise", "plant"}
SPOTS = ["old well", "big stone", "wooden bridge", "apple tree", "garden gate", "blue bench", "hollow log", "rose bush",
         "pond", "haystack", "mill wheel", "fence"]
END = ["And so it was that {N} and {F} stayed friends for ever.", "That night {N} fell asleep with a smile.",
       "From that day on, they were better friends than ever.", "And they lived happily ever after.", "The end.",
       "{N} never forgot that day.", "And if you walk {p}, you may still see {N} with the {o}.",
       "And {N} told the story of the {o} again and again.", "Then they went home, because supper was ready.",
       "\"What a day!\" said {N}, and {F} agreed.", "It was a day that {N} and {F} remembered for a long time."]
