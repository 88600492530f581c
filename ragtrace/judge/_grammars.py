"""What the comparison of words needs to know of a language: function words, inflection, negation, numbers.

The tables are short on purpose: light stemmers (after Savoy 2006 and Larkey et al. 2002), and the words that
decide whether a sentence negates or hedges.
"""

# ruff: noqa: RUF001  the languages have their own marks

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ragtrace.languages import Language

_NOTHING: Final = re.compile(r"(?!)")
_NO_WORDS: Final[Mapping[str, str]] = MappingProxyType({})
Suffixes = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grammar:
    """The rules of a language."""

    language: Language
    stop_words: frozenset[str]
    negation: re.Pattern[str]
    hedges: re.Pattern[str]
    suffixes: Suffixes = ()
    """Ending, its replacement, and the least number of letters before it. The first match applies."""
    prefixes: tuple[str, ...] = ()
    """Articles, prepositions and conjunctions that are written together with a word."""
    elided: re.Pattern[str] = field(default=_NOTHING)
    """Articles and pronouns before an apostrophe."""
    ordinals: str = ""
    """A pattern: what follows the figures of an ordinal."""
    number_words: Mapping[str, str] = field(default_factory=lambda: _NO_WORDS)
    decimal_comma: bool = False
    """Whether 1.250,5 is a number, and 1 250."""
    has_capitals: bool = True
    has_myriads: bool = False
    """Whether numbers may be written with characters: 3万, 三十."""

    @property
    def is_english(self) -> bool:
        """Whether these are the rules that the support model was trained with."""
        return self.language is Language.ENGLISH


def grammar_of(language: Language | None) -> Grammar:
    """Return a language's rules; those of English if it is not known."""
    return GRAMMARS.get(language or Language.ENGLISH, ENGLISH)


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _counted(words: str, *, first: int = 0) -> dict[str, str]:
    return {word: str(value) for value, word in enumerate(words.split(), first)}


def _word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)


def _english(*words: str, within: str = r"(?!)") -> re.Pattern[str]:
    """Return what finds these words, or a part ``within`` another; the part begins as one of the words.

    It begins with a set of letters, to which `re` skips several times as fast as to a word boundary.
    """
    firsts = "".join(sorted({word[0] for word in words}))
    by_first = {first: [word[1:] for word in words if word[0] == first] for first in firsts}
    rests = "|".join(f"(?<={first})(?:{'|'.join(rest)})" for first, rest in by_first.items())
    return re.compile(rf"[{firsts}{firsts.upper()}](?i:(?:(?<!\w.)(?:{rests})|{within})\b)")


ENGLISH: Final = Grammar(
    language=Language.ENGLISH,
    stop_words=_listed(
        """
        a about above according across after again all along also although am among an and any
        anybody are around as at be because been before being below between both but by can
        could did do does doing done down due during each either else etc even ever every few
        for from further had has have having he her here hers him his how however i if in into
        is it its itself just least less like made make makes many may me might more most much
        must my near neither no nor not of off often on once one only onto or other others our
        out over own per rather same several shall she should since so some such than that the
        their theirs them then there therefore these they this those though through thus to
        together too toward towards under until up upon us use used using very via was way we
        well were what when where whether which while who whom whose why will with within
        without would yet you your yours
        """
    ),
    negation=_english(
        *("not", "no", "never", "none", "nor", "neither", "without", "cannot"),
        within="(?<=n)['’]t",
    ),
    hedges=_english(
        *(
            "may",
            "might",
            "could",
            "generally",
            "typically",
            "usually",
            "often",
            "likely",
            "possibly",
            "perhaps",
        ),
        *("overall", "additionally", "however", "important to note", "it is recommended", "in conclusion"),
        "in summary",
    ),
    suffixes=(
        ("ational", "ate", 3),
        ("ization", "ize", 3),
        ("ations", "at", 3),
        ("ation", "at", 3),
        ("ities", "ity", 3),
        ("ments", "", 4),
        ("ment", "", 4),
        ("ings", "", 3),
        ("ing", "", 3),
        ("iest", "y", 3),
        ("ied", "y", 3),
        ("ies", "y", 3),
        ("edly", "", 3),
        ("ally", "al", 3),
        ("ness", "", 4),
        ("sses", "ss", 2),
        ("ches", "ch", 2),
        ("shes", "sh", 2),
        ("xes", "x", 2),
        ("ed", "", 3),
        ("ly", "", 4),
        ("ss", "ss", 2),
        ("us", "us", 2),
        ("is", "is", 2),
        ("s", "", 3),
    ),
    ordinals=r"st\b|nd\b|rd\b|th\b",
    number_words=_counted(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
        " sixteen seventeen eighteen nineteen twenty"
    )
    | {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100"},
)


def _endings(*by_length: tuple[int, str]) -> Suffixes:
    """Return endings that are removed, the longest first, each with the least number of letters before it."""
    found = [(ending, "", before) for before, endings in by_length for ending in endings.split()]
    return tuple(sorted(found, key=lambda suffix: -len(suffix[0])))


_GERMAN = Grammar(
    language=Language.GERMAN,
    stop_words=_listed(
        """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer
        anderes auch auf aus bei beim bin bis bist da dabei dadurch dafür damit dann daran
        darauf daraus darf darin darüber das dass dein dem den denn der deren des dessen desto
        die dies diese diesem diesen dieser dieses doch dort du durch dürfen ein eine einem
        einen einer eines er es etwa etwas euch euer für gegen gibt habe haben hat hatte
        hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins
        ist ja jede jedem jeden jeder jedes jene jetzt kann können könnte machen man mehr mein
        mit muss müssen nach nachdem neben noch nun nur ob oder ohne sehr sein seine seinem
        seinen seiner seit sich sie sind so sobald sogar soll sollte sondern sonst soweit
        sowie über um und uns unser unter viel viele vom von vor war waren was weil welche
        welcher wenn werden wer wie wieder wir wird wo wurde wurden während zu zum zur zwar
        zwischen nicht kein keine keinem keinen keiner
        """
    ),
    negation=_word(
        r"nicht|nichts|nie|niemals|niemand\w*|kein(?:e[mnrs]?)?|weder|ohne|keinesfalls|keineswegs"
    ),
    hedges=_word(
        r"könnten?|dürfte[nt]?|möglicherweise|vielleicht|wahrscheinlich|vermutlich|eventuell|oft|häufig|meistens?"
        r"|üblicherweise|normalerweise|typischerweise|in der Regel|im Allgemeinen|insgesamt|zusammenfassend"
    ),
    suffixes=_endings((3, "ungen innen ern est em en er es et e s n"), (4, "ten tet te t")),
    number_words=_counted(
        "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn"
        " sechzehn siebzehn achtzehn neunzehn zwanzig"
    )
    | {"eine": "1", "einen": "1", "dreißig": "30", "vierzig": "40", "fünfzig": "50", "sechzig": "60"}
    | {"hundert": "100", "tausend": "1000"},
    decimal_comma=True,
)
_FRENCH = Grammar(
    language=Language.FRENCH,
    stop_words=_listed(
        """
        à afin ai ainsi alors après as au aucun aucune aussi autre autres aux avant avec avez
        avoir avons car ce ceci cela celle celui ces cet cette ceux chaque chez ci comme
        comment dans de depuis des deux donc dont du elle elles en encore entre est et étaient
        était être eu eux fait font ici il ils je jusque la là le les leur leurs lors lui ma
        mais me même mes moi mon ne ni non nos notre nous on ont ou où par parce pas pendant
        peu peut peuvent plus pour pourquoi qu quand que quel quelle quelles quels qui sa sans
        se selon sera ses si sien son sont sous sur ta te tel telle tes toi ton tous tout
        toute toutes très tu un une vers vos votre vous y été l d c j m n s t
        """
    ),
    negation=_word(r"pas|jamais|aucune?s?|sans|ni|rien|nulle?s?|non|guère"),
    hedges=_word(
        r"pourrai(?:t|ent)|peut-être|probablement|possiblement|éventuellement|généralement|habituellement"
        r"|souvent|typiquement|en général|cependant|en résumé|en conclusion|dans l['’]ensemble"
    ),
    suffixes=_endings(
        (3, "issements issement ements ement ations ation euses euse ives ive eaux aux aient ait ees ent"),
        (3, "ez er es ee e s x"),
    ),
    elided=re.compile(r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)['’]", re.IGNORECASE),
    ordinals=r"er\b|re\b|ère\b|e\b|ème\b|eme\b",
    number_words=_counted(
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"
    )
    | {"une": "1", "vingt": "20", "trente": "30", "quarante": "40", "cinquante": "50", "soixante": "60"}
    | {"cent": "100", "mille": "1000"},
    decimal_comma=True,
)
_SPANISH = Grammar(
    language=Language.SPANISH,
    stop_words=_listed(
        """
        a al algo alguna algunas alguno algunos ante antes aquel aquella así aun aunque bajo
        cada como con contra cual cuales cuando cuanto de del desde después donde durante e el
        él ella ellas ellos en entre era eran es esa esas ese eso esos esta está están estas
        este esto estos fue fueron ha hace hacia han hasta hay la las le les lo los más me mi
        mientras mis mucho muchos muy nada ni ningún ninguna no nos nosotros o os otra otras
        otro otros para pero poco por porque pueden puede que qué quien quién se sea según ser
        si sí sido sin sobre son su sus también tan tanto te tiene tienen toda todas todo
        todos tras tu tus u un una unas uno unos usted ustedes y ya
        """
    ),
    negation=_word(r"no|nunca|jamás|ningún|ningun[oa]s?|nadie|nada|sin|tampoco|ni"),
    hedges=_word(
        r"podrían?|quizás?|tal vez|probablemente|posiblemente|generalmente|normalmente|habitualmente"
        r"|a menudo|suelen?|en general|sin embargo|en resumen|en conclusión"
    ),
    suffixes=_endings(
        (
            3,
            "amientos amiento aciones acion idades idad iendo ando ieron aron aban aba ados adas ado ada",
        ),
        (3, "idos idas ido ida ir ar er an en io os as es o a e s"),
    ),
    ordinals=r"\.?[ºª]|er\b",
    number_words=_counted(
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis"
        " diecisiete dieciocho diecinueve veinte"
    )
    | {"un": "1", "una": "1", "treinta": "30", "cuarenta": "40", "cincuenta": "50", "sesenta": "60"}
    | {"cien": "100", "ciento": "100", "mil": "1000"},
    decimal_comma=True,
)
_CHINESE = Grammar(
    language=Language.CHINESE,
    stop_words=_listed(
        "的 了 是 在 和 与 及 或 也 都 而 并 且 就 又 把 被 着 过 吗 呢 吧 啊 之 以 于 對 对 為 为 這 这 那"
    ),
    negation=re.compile(
        r"不(?!同|仅|僅|但|断|斷|过|過|少|久|管|论|論|妨|错|錯|丹)|[没沒](?!收)|未(?!来|來|必)"
        r"|[无無](?!论|論|数|數|疑|线|線|锡)|(?<![南北除])非(?!常|洲|凡)|勿"
    ),
    hedges=re.compile("可能|也许|也許|或许|或許|大概|大约|大約|通常|一般|往往|总的来说|總的來說|总之|總之"),
    has_capitals=False,
    has_myriads=True,
)
_JAPANESE = Grammar(
    language=Language.JAPANESE,
    stop_words=frozenset(),
    negation=re.compile(
        r"ませ[んぬ]|(?<!少)(?<!危)(?<!なけれ)な(?:い(?!し)|かった)|(?<!少)なく(?!な[りるれっ])|(?<!ま)ず(?:に|、|。)"
    ),
    hedges=re.compile(
        "かもしれ|でしょう|おそらく|たぶん|可能性|一般的|通常|普通は|場合が多い|ことが多い|まとめると"
    ),
    has_capitals=False,
    has_myriads=True,
)
_ARABIC = Grammar(  # the words are spelled as `one_spelling` gives them
    language=Language.ARABIC,
    stop_words=_listed(
        """
        في من علي الي عن مع هذا هذه ذلك تلك التي الذي الذين ان كان كانت يكون تكون قد كما او ثم
        بين بعد قبل عند عندما كل بعض غير اي ايضا حتي حيث هو هي هم ما لا لم لن ليس ليست و ف اذا
        لكن بل منذ خلال فيه فيها به بها له لها عليه عليها
        """
    ),
    negation=re.compile(r"(?<!\w)[وف]?(?:لا|لم|لن|ليس\w*|بدون|دون|غير)(?!\w)"),
    hedges=re.compile(r"(?<!\w)(?:قد|ربما|لعل|غالبا|عاده|عموما|من المحتمل|من الممكن|بشكل عام)(?!\w)"),
    suffixes=_endings((2, "ها ان ات ون ين يه"), (3, "ه ي")),
    prefixes=("وال", "بال", "كال", "فال", "لل", "ال", "و"),
    number_words={
        **dict.fromkeys(("واحد", "واحده"), "1"),
        **dict.fromkeys(("اثنان", "اثنين", "اثنتان", "اثنتين"), "2"),
        **_counted("ثلاث اربع خمس ست سبع ثمان تسع عشر", first=3),
        **_counted("ثلاثه اربعه خمسه سته سبعه ثمانيه تسعه عشره", first=3),
        "عشرون": "20",
        "عشرين": "20",
        "ثلاثون": "30",
        "ثلاثين": "30",
        "مئه": "100",
        "مائه": "100",
        "الف": "1000",
    },
    has_capitals=False,
)
GRAMMARS: Final[Mapping[Language, Grammar]] = MappingProxyType(
    {
        grammar.language: grammar
        for grammar in (ENGLISH, _GERMAN, _FRENCH, _SPANISH, _CHINESE, _JAPANESE, _ARABIC)
    }
)
