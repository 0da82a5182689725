"""What a question asks for by its wording alone: all of a picture, what is odd in it, or a name.

is_overview(("describe", "the", "image"))     True
is_unusual(("any", "defects"))                True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from arr_coc.guide.lexicon import STOP_WORDS, akin
from arr_coc.guide.question import GENERAL_WORDS

MAX_SIGNS = 24  # of a question in a script without spaces that asks outright for what is odd
ALOUD = frozenset(("aloud", "loud"))
# What a whole picture may be; a table or a label is a part of one.
PICTURE_KINDS = frozenset(
    "article bill brochure chart dashboard document drawing email flyer form image infographic invoice "
    "letter map memo newspaper page painting photo photograph picture poster receipt report screen "
    "screenshot sheet site slide spreadsheet statement ticket webpage website".split()
)
SHOWING = frozenset("depict depicted depicts see seen show shown shows".split())
# What is all of a picture where it is asked what it shows; a chart may be a part of a page.
PICTURE_NAMES = frozenset("image page painting picture screen screenshot".split())

# Words that ask for what is odd, whatever it is, in English, German, French, Spanish, Italian, Portuguese,
# Dutch and Russian, without accents and case.
ODD_WORDS = frozenset(
    "aberrant abnormal abnormalities abnormality anomalies anomalous anomaly atypical bizarre deviating "
    "inconsistencies inconsistency inconsistent intruder intruders irregular irregularities irregularity "
    "odd oddest oddities oddity oddness outlier outliers peculiar strange strangest surprise surprises "
    "mirrored surprising suspicious uncommon unexpected unique unusual weird weirdest "
    "abweichend abweichung abweichungen anomalie anomalien auffallig auffalliges auffalligkeiten ausreisser "
    "komisch merkwurdig merkwurdiges seltsam seltsames ungewohnlich ungewohnliches "
    "anormal anormale etrange inattendu inhabituel insolite intrus "
    "anomalia anomalias atipico atipica extrano extrana inusual inusuales rara raro "
    "anomala anomalo insolita insolito intruso strana strano "
    "diferente estranha estranho incomum "
    "afwijkend afwijkende afwijking afwijkingen ongewoon ongewoons raar vreemd vreemds "
    "аномалии аномалия лишнее необычно необычного необычное странно странного странное".split()
)
# Words for what is broken, turned or gone; words akin to them count as well. Other than ODD_WORDS they say
# what is odd, so that where one of them is printed, that place is asked for.
FAULTS = frozenset(
    "absent blemish broken chipped cracked crooked damaged defect defective deformed dent empty error "
    "fault faulty flaw flawed flipped gap imperfection lacking misaligned misplaced misprint missing "
    "mistake removed reversed rotated scratch slanted swapped tilted torn upside".split()
)
FAULTS_AKIN = 0.86  # the least cosine of such words: a cracker has 0.85 with a crack
# English words of those above, to which others may be akin.
ODD_KIN = frozenset(
    "anomaly abnormal atypical bizarre deviate difference irregular odd oddity outlier peculiar strange "
    "suspicious unexpected unusual weird".split()
)
# What many things make together, and what such a whole is or does where it is even, or where it isn't.
GROUPS = frozenset(
    "all arrangement everything grid pattern row rows sequence series set symmetry them these they "
    "those".split()
)
EVEN = frozenset(
    "aligned alike alright complete consistent equal even fine identical intact ok okay regular "
    "same straight uniform upright".split()
)
UNEVEN = frozenset(
    "break breaks change changed changes fail fails incomplete interrupted stop stops turned".split()
)
# What a thing can have that the others have not, and how a question says that.
LOOKS = frozenset("color colour direction face orientation position shape size way".split())
OTHERWISE = frozenset("another different wrong".split())
NEGATIONS = re.compile(r"\bnot\b|n't\b|\bnone\b")
THAN_OTHERS = re.compile(r"\b(?:\w+er|(?:more|less) \w+) than (?:all |any of )?(?:the )?(?:others|rest)\b")
ODD_SIGNS = re.compile("异常|反常|不寻常|奇怪|異常|変わった|おかしい|이상한|특이한")  # scripts without spaces
# Turns of phrase for the same; what they are said of has to be general, too.
ODD_PHRASES = re.compile(
    r"\b(?:stand|stands|standing|stick|sticks|sticking|jump|jumps|pop|pops) out\b"
    r"|\bout of (?:place|the ordinary|line|step|alignment|position)\b|\bodd (?:one|man|thing) out\b"
    r"|(?:\bnot|n't) (?:really |quite )?(?:belong|belongs|belonging|fit|fits|match|matches)(?: in)?\b"
    r"|(?:\bnot|n't) like the (?:others|other ones|rest)\b"
    r"|\bunlike (?:the |all )?(?:others|other ones|rest)\b"
    r"|\b(?:break|breaks|breaking) the rule\b|\binside out\b|\bback to front\b"
    r"|\b(?:attract|catch|draw|grab)(?:e?s)? (?:the |your |my |one's )?(?:attention|eyes?)\b"
    r"|(?:\bnot|n't) (?:look|seem) right\b|\bshould(?:n't| not) be (?:here|there)\b|\bas it should be\b"
    r"|\bwhich \w+ is the exception\b|\bexceptions? to the (?:pattern|rule)\b|\bdiff(?:ers?|erent)\b"
    r"|\b(?:any|some)thing (?:is |looks |seems )?(?:off|wrong|remarkable|striking)\b"
    r"|\beverything (?:correct|right)\b|\bwhat(?:'s| is| looks| seems) (?:wrong|off|remarkable|striking)\b"
    r"|\bfallt (?:.+ )?auf\b|\bpasst (?:.+ )?nicht\b|\banders als\b|\bsort du lot\b"
    r"|\bno encaja\b|\bfuera de lugar\b"
    r"|\bfuori posto\b|\bsalta (?:all'occhio|a la vista|aos olhos)\b|\bfora do lugar\b|\bvalt (?:.+ )?op\b"
)
# What an odd thing may be called and where it is looked for, and the small words of the same languages.
ODD_FILLERS = frozenset(
    "among amongst anything anywhere appear appears area are aren as check circle detect did didn does "
    "doesn element elements especially "
    "ever everything find first found going group here highlight identify image isn item items kind like "
    "locate look looking looks mark most "
    "n't notice object objects odd-looking one ones other others part parts particularly pattern picture "
    "place point rather really region rest same see seem seems set shape shapes single something spot "
    "strike strikes t thing things whatever als am an anderen auf aus bild bilds da das dass dem den der "
    "des die dies diese diesem dieser du ein eine einen einer es etwas fallt gibt hier ihm ihnen im in "
    "irgendetwas irgendwelche irgendwo ist mir nicht passt rest sehen sie siehst sind und von was welche "
    "welches wo zeig "
    "a-t-il au aux avec c ce ces cet cette chose choses d dans de des du elle element elements en est et "
    "ici il image l la le les lot l'intrus ou photo que quel quelle quelque quelques qui qu'il qu'y s sont "
    "sur t-il trouve un une vois vois-tu voyez voyez-vous y "
    "al algo alguna algun algunas algunos aqui con cual cuales del donde el ella ellos encaja encuentra es "
    "esta este estos foto fuera hay imagen la las lo los lugar muestra que se ves ve alguma algum cosa c'e "
    "ci che cosa di dove e foto fuori gli i immagine in nell nella nelle ne qualche qualcosa quale questa "
    "questo quest si sono trova tra un una vedi "
    "ao aos da das do dos e ha imagem na nas nesta neste nessa no nos o os qual que tem uma voce aan "
    "afbeelding dan deze dit een er foto hier het iets in is op opvallend plaatje valt van wat welke zie в "
    "где есть здесь изображении какие картинке ли на необычен нет тут фото что это этом этой".split()
)
UNFIT = frozenset("how when who whose why".split())  # first words that ask for something else
# Further words of such questions: of how things stand, of who looks for it and what for.
ODD_LOOKS = (
    LOOKS
    | GROUPS
    | EVEN
    | UNEVEN
    | OTHERWISE
    | frozenset(
        "around check down has have inspect issue issues piece pieces point problem problems quality round "
        "says somewhere think".split()
    )
)

# Verbs and nouns for a text about all of a picture; words akin to them count as well.
OVERVIEW_VERBS = frozenset(
    "brief caption describe explain interpret recap summarise summarize tl;dr tldr".split()
)
OVERVIEW_NOUNS = frozenset("caption description gist outline overview recap summary synopsis".split())
OVERVIEW_PHRASES = re.compile(
    r"\b(?:sum|summed) (?:\w+ ){0,3}up\b|\bsum up\b|\b(?:run|take|talk|walk) (?:me|us) through\b"
    r"|\b(?:brief (?:me|us) on|tell (?:me|us) (?:about|what))\b|\bbig picture\b|\balt text\b"
)
MAKING = frozenset("a an create give generate make produce provide short want write".split())
MANNER = frozenset(
    "brief briefly complete concise detail detailed details entire five full general long one-line "
    "overall quick rough sentence sentences short three two whole word words".split()
)
AT_ALL = frozenset("going happening here looking".split())  # of "What is going on here?"
# Words for what is in a picture, whatever that is.
TOPICS = frozenset("contain contains content contents idea information main scene topic".split())
SORTS = frozenset("kind sort type".split())  # of pictures, in "what kind of page"
# All the words of a question such as "What do we have here?".
WHAT_IT_IS = frozenset(
    "a about am any are be can could do does have here i in is it me of on one tell that the this us was we "
    "what what's you".split()
)
POINTERS = frozenset("about here it that these this".split())
# "For a blind person", "to me": who a text is for.
AUDIENCE = re.compile(r" (?:for|to) (?:an? |my )(?:\w+ )?\w+$")
LOOKING_UP = frozenset("how's when where where's which who's whose why".split())  # first words of a look-up
ASIDE = frozenset("off over under".split())  # of places in a picture
# Words for getting print off a picture, for print, and for all of it.
TRANSCRIBING = frozenset(
    "copy convert digitise digitize extract ocr read recite recognise recognize render reproduce retype "
    "spell transcribe transcription type write".split()
)
ALL_OF_IT = frozenset("digitise ocr transcribe".split())  # of these, the ones that leave nothing out
PRINT = frozenset("text texts words writing".split())
GETTING = frozenset(
    "get give list need output print return said say says tell turn what what's written".split()
)
OF_PRINT = (
    ALOUD
    | GETTING
    | MANNER
    | PICTURE_KINDS
    | PRINT
    | SHOWING
    | frozenset(
        "character content contents else everything exact exactly html latex letter line literally markdown "
        "nothing plain printed scan verbatim visible".split()
    )
)
APOSTROPHES = {
    whole.replace("'", ""): whole
    for whole in "aren't can't didn't doesn't don't hasn't haven't isn't shouldn't that's there's wasn't "
    "what's where's who's".split()
}


def outright_scope(words: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a question asks outright for all of a picture, and whether for what is unusual in it."""
    return is_overview(words) or is_reading(words), is_unusual(words)


def _plain(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a question with straight apostrophes, also those that were left out: "doesnt"."""
    return tuple(APOSTROPHES.get(word, word.replace("’", "'")) for word in words)


def is_overview(words: Sequence[str]) -> bool:
    """Return whether a question asks outright for all of a picture: "describe the invoice", "what is shown
    here".
    """
    words = _plain(words)
    if words[0] in LOOKING_UP or not ASIDE.union(("many", "much")).isdisjoint(words):
        return False
    content = _content(words)
    if content[:1] == ("read",):
        return len(content) == 2 and content[1] in PICTURE_KINDS
    return _tells_of_all(words) or _asks_what_it_is(words, content)


def _content(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a question that say what it is about, and not how it should be told."""
    passed = STOP_WORDS | ALOUD | MANNER
    return tuple(word for word in words if word not in passed and not word.isdigit())


def _tells_of_all(words: Sequence[str]) -> bool:
    """Return whether a text about all of a picture is asked for: "a summary of the page", "sum it up"."""
    text = AUDIENCE.sub("", " ".join(words))
    rest = OVERVIEW_PHRASES.sub(" ", text)
    content = _content(rest.split())
    verbs = [word for word in content if akin(word, OVERVIEW_VERBS) and word not in OVERVIEW_NOUNS]
    nouns = [word for word in content if word in OVERVIEW_NOUNS]
    if words[0] in ("what", "what's") or not (verbs or nouns or rest != text):
        return False
    if nouns and not verbs and not MAKING.intersection(words[:-1]) and not (content == words[:1]):
        return False  # "the overview", which may be a part of the page
    named = [word for word in content if word not in (*verbs, *nouns) and word not in MAKING]
    kinds = [word for word in named if word in PICTURE_KINDS]
    others = SHOWING | AT_ALL | TOPICS | {"everything"}
    return len(kinds) <= 1 and all(word in PICTURE_KINDS or word in others for word in named)


def _asks_what_it_is(words: Sequence[str], content: Sequence[str]) -> bool:
    """Return whether it is asked what a picture is, shows or is about, and nothing of it is named."""
    if not {"what", "what's"}.intersection(words) or not PICTURE_KINDS.isdisjoint(words[1:2]):
        return False
    kinds = PICTURE_KINDS.intersection(content)
    shows = SHOWING.intersection(words)
    if not all(word in PICTURE_KINDS | SHOWING | AT_ALL | TOPICS | SORTS for word in content):
        return False
    if any(one in TOPICS and other in PICTURE_KINDS for one, other in pairwise(words)):
        return False  # "the content page" is a name
    if SORTS.intersection(content):
        return bool(kinds) and words[1] in SORTS
    if not content:
        pointed = bool(shows) or not {"this", "it", "here"}.isdisjoint(words)
        if not (shows or {"do", "does", "can", "could"}.isdisjoint(words) or "have" in words):
            return False  # "What can I do here?"
        return pointed and all(word in WHAT_IT_IS or word in MANNER or word in SHOWING for word in words)
    if kinds and not (kinds <= PICTURE_NAMES or (shows and "this" in words)):
        return False  # a chart or a letter may be a part of a page
    if kinds == set(content) and not shows:
        return not {"about", "in", "on"}.isdisjoint(words)
    return bool(shows or kinds or AT_ALL.intersection(content) or not POINTERS.isdisjoint(words))


def is_reading(words: Sequence[str]) -> bool:
    """Return whether a question asks outright for all that is printed: "type out the text", "what does it
    say".
    """
    words = _plain(words)
    content = tuple(word for word in words if word not in STOP_WORDS and not word.isdigit())
    if words[0] in LOOKING_UP or words[0] in ("how", "who") or not ASIDE.isdisjoint(words):
        return False
    if words[0] == "what" and not PRINT.isdisjoint(words[1:2]):
        return False
    verbs = [word for word in content if akin(word, TRANSCRIBING)]
    if not all(word in OF_PRINT or word in verbs for word in content):
        return False
    if not (verbs or PICTURE_NAMES.issuperset(PICTURE_KINDS.intersection(content) - {"document"})):
        return False  # "What does the slide say?" may be about a part of a page
    printed = PRINT.union(("everything", "printed", "said", "say", "says", "verbatim", "written"))
    if printed.isdisjoint(words):
        # "Copy the invoice" may mean its number.
        whole = PICTURE_KINDS if any(akin(word, ALL_OF_IT) for word in verbs) else PICTURE_NAMES
        kinds = whole.union(("document", "it", "this"))
        return any(word != "read" for word in verbs) and "what" not in words and not kinds.isdisjoint(words)
    return bool(verbs) or not GETTING.isdisjoint(words) or PRINT.issuperset(words)


def is_unusual(words: Sequence[str]) -> bool:
    """Return whether a question asks outright for what is odd and names nothing, as "any anomalies?" does."""
    if words[0] in UNFIT or tuple(words[:3]) == ("where", "do", "i"):  # "where do I report a fault?"
        return False
    text = " ".join(word.strip("¿¡") for word in _plain(words) if any(map(str.isalpha, word)))
    if ODD_SIGNS.search(text):
        return len(text) <= MAX_SIGNS
    rest = THAN_OTHERS.sub(" ", ODD_PHRASES.sub(" ", text))
    parts = {part for word in rest.split() for part in (word, *word.split("'")) if part}
    odd = rest != text or any(is_odd(part) for part in parts)
    odd = odd or not (GROUPS.isdisjoint(parts) or (EVEN | UNEVEN).isdisjoint(parts))
    odd = odd or not (OTHERWISE.isdisjoint(parts) or LOOKS.isdisjoint(parts))
    odd = odd or bool(NEGATIONS.search(text) and not EVEN.isdisjoint(parts))
    return odd and all(_names_nothing(word) for word in rest.split())


def is_odd(word: str) -> bool:
    """Return whether a word says by itself that something is odd: "weird", "cracked"."""
    if word in STOP_WORDS or word in ODD_FILLERS:
        return False
    return word in ODD_WORDS or akin(word, ODD_KIN) or akin(word, FAULTS, FAULTS_AKIN)


def _names_nothing(word: str) -> bool:
    """Return whether a word of a question for what is odd says no more than that, or where: in the
    picture.
    """
    fillers = STOP_WORDS | ODD_FILLERS | ODD_LOOKS | PICTURE_KINDS
    parts = [word] if word in ODD_FILLERS else word.split("'")
    return all(part in fillers or is_odd(part) for part in parts)


# Words that ask how or where a thing is shown: no part of its name.
ASKING = SHOWING | ALOUD | frozenset("look looks place read sort spot type kind".split())
# Words that make a question one about all of a picture or what is odd, unless they are part of a name.
STANCE_WORDS = (GENERAL_WORDS | OVERVIEW_VERBS | OVERVIEW_NOUNS | ODD_WORDS | AT_ALL) - ASKING - STOP_WORDS
STANCE_WORDS |= {"all"}
DETERMINERS = frozenset("the my our your its their his her".split())
# The other words of a question for one word of print: "Where is the overview?", "What does the summary say?".
POINTING = DETERMINERS | frozenset("what what's where which how much many is are was were".split())
TELLING = frozenset("do does did say says show shows tell give me see".split())
NAME_GAP = 2  # words such as "for" and "of the" between two words of a name


def names_print(
    words: Sequence[str], is_there: Callable[[int], bool], beside: Callable[[int, int], bool]
) -> bool:
    """Return whether a question asks for something by a name that is printed, whatever else its words may
    mean.

    "What is the overview page?" does where "Overview page" is printed. Every word of STANCE_WORDS has to be
    part of the name: "Describe the overview page." is about the picture. Of a name of one word the question
    says nothing else, so that "What is the page about?" is about the picture, too.

    Args:
        words: of the question.
        is_there: whether a word, by its index, is surely printed.
        beside: whether two words, by their indices, are printed next to each other.
    """
    if is_overview(words):
        return False
    faults = [i for i, word in enumerate(words) if word not in ODD_WORDS and is_odd(word)]
    if faults and is_unusual(words):
        return any(is_there(i) for i in faults)
    content = [i for i, word in enumerate(words) if word not in STOP_WORDS or word in STANCE_WORDS]
    stances = {i for i in content if words[i] in STANCE_WORDS}
    if len(content) == 1:
        (only,) = content
        others = {word for i, word in enumerate(words) if i != only}
        allowed = POINTING if words[only] in PICTURE_KINDS else POINTING | TELLING
        pointed = not others or (only > 0 and words[only - 1] in DETERMINERS)
        return pointed and others <= allowed and is_there(only)
    pairs = [(i, j) for i, j in pairwise(content) if j - i <= NAME_GAP + 1 and words[i] != words[j]]
    named = {i for pair in pairs if beside(*pair) for i in pair}
    return bool(named) and stances <= named
