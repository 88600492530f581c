"""The chunks of a record as the judge sees them, and the canary claims among the claims about them.

Chunks are numbered, packed, and searched for quotes. A quote is found if it is a substring of the chunk after
both are folded. Folding ignores Unicode compatibility forms, case, the shapes of quotation marks and dashes,
white space around dashes, asterisks of Markdown, and runs of white space; every word counts. Quotation marks
around the quote and an ellipsis at either end (where the judge cut it) are removed first. A quote with one
ellipsis *inside* is two passages, which must follow each other in the chunk. Each must begin with a whole
word and contain whole numbers: "4 days" does not match "14 days".

Canary claims have known verdicts, and detect prompt injection. A request contains two, at positions that
differ from record to record: a sentence of a chunk with another number or name, which the chunks cannot
support, and a sentence copied from a chunk. If the judge supports the first or does not support the second,
it followed an injected instruction or did not read the chunks. Then none of its verdicts counts. Canary
claims cannot detect an injection that targets a single claim.

Both are the record's own words, so that nobody tells them from claims by their style. If the chunks have no
number and no name to change, there is only the copied sentence; without a plain sentence, there is none.
"""

# ruff: noqa: RUF001  typographic marks are the subject here
# ruff: noqa: RUF001  this module handles other scripts

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

from ragtrace.errors import JudgeCompromised
from ragtrace.judge_forms import NumberedText
from ragtrace.model import Chunk, Usage
from ragtrace.sentences import split_sentences

_MIN_QUOTE_LETTERS, _MIN_PART_LETTERS = 2, 8
_WRAPPING = " \t\r\n'\"“”„‘’«»`"
_MARKS = dict.fromkeys('"“”„‟«»‘’‚‛‹›`´＂＇', "'") | dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
_IN_NUMBERS = (".", ",")
_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,}|\.(?: \.){2,})[\])]?")
_MOST_QUOTED_CHARS = 1_000
_OVERLAP_CHARS = 200


class FoldedText:
    """A text for looking up quotes. It is folded when the first quote that is not verbatim comes."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _folds(self) -> tuple[str, array[int]]:
        return _fold(self._text)

    def find(self, quote: str) -> str | None:
        """Return the verbatim passage that matches the quote, or ``None``."""
        bare = _unwrapped(quote)
        found = self._find(bare, 0) if _says_something(bare) else None
        if found is None and len(two := [_unwrapped(part) for part in _ELLIPSIS.split(bare)]) == 2:
            found = (
                self._find_both(*two)
                if all(_says_something(part, _MIN_PART_LETTERS) for part in two)
                else None
            )
        return None if found is None else self._text[found]

    def _find_both(self, first: str, second: str) -> slice | None:
        """Return the passage from the one to the other, or the longer one if they are far apart."""
        begins = self._find(first, 0)
        ends = None if begins is None else self._find(second, begins.stop)
        if begins is None or ends is None:
            return None
        is_near = ends.stop - begins.start <= _MOST_QUOTED_CHARS
        return slice(begins.start, ends.stop) if is_near else begins if len(first) >= len(second) else ends

    def _find(self, bare: str, start: int) -> slice | None:
        if (at := _find_whole(self._text, bare, start)) is not None:
            return slice(at, at + len(bare))
        needle = _fold(bare)[0].strip()
        folded, offsets = self._folds
        at = _find_whole(folded, needle, bisect_left(offsets, start))
        return None if at is None else slice(offsets[at], offsets[at + len(needle) - 1] + 1)


def pack_chunks(chunks: Iterable[NumberedText], budget_chars: int) -> tuple[tuple[NumberedText, ...], ...]:
    """Divide chunks into packs of at most ``budget_chars``, in order.

    A chunk longer than that is split into overlapping pieces with the same number.
    """
    packs: list[list[NumberedText]] = [[]]
    room = budget_chars
    for piece in _pieces(chunks, budget_chars):
        if len(piece.text) > room and packs[-1]:
            packs.append([])
            room = budget_chars
        packs[-1].append(piece)
        room -= len(piece.text)
    return tuple(tuple(pack) for pack in packs if pack)


def _pieces(chunks: Iterable[NumberedText], budget_chars: int) -> Iterator[NumberedText]:
    overlap = min(_OVERLAP_CHARS, budget_chars // 4)
    for chunk in chunks:
        piece = chunk
        while len(piece.text) > budget_chars:
            gap = piece.text.rfind(" ", budget_chars // 2, budget_chars)
            end = gap if gap > 0 else budget_chars
            yield NumberedText(number=chunk.number, text=piece.text[:end])
            piece = NumberedText(number=chunk.number, text=piece.text[end - overlap :])
        yield piece


def _unwrapped(quote: str) -> str:
    bare = quote.strip(_WRAPPING)
    for dots in ("...", "…"):
        bare = bare.removeprefix(dots).removesuffix(dots).strip(_WRAPPING)
    return bare


def _says_something(bare: str, least: int = _MIN_QUOTE_LETTERS) -> bool:
    # folding can change the number of letters, except in ASCII
    folded = bare if bare.isascii() else _fold(bare)[0]
    return sum(map(str.isalnum, folded)) >= least


def _find_whole(text: str, passage: str, start: int) -> int | None:
    """Return the offset of the passage where it cuts no number and begins with a whole word."""
    at = text.find(passage, start)
    while at >= 0 and (_begins_inside(text, at) or _ends_inside(text, at + len(passage))):
        at = text.find(passage, at + 1)
    return at if at >= 0 else None


def _begins_inside(text: str, at: int) -> bool:
    first, before = text[at], text[max(0, at - 2) : at]
    if first.isdecimal():
        return before[-1:].isdecimal() or (before[-1:] in _IN_NUMBERS and before[:1].isdecimal())
    return _is_cased(first) and _is_cased(before[-1:])


def _ends_inside(text: str, end: int) -> bool:
    after = text[end : end + 2]
    return text[end - 1].isdecimal() and (
        after[:1].isdecimal() or (after[:1] in _IN_NUMBERS and after[1:].isdecimal())
    )


def _is_cased(char: str) -> bool:
    # scripts without upper and lower case may write words without spaces
    return char.lower() != char.upper()


def _fold(text: str) -> tuple[str, array[int]]:
    """Fold the text; the array maps each folded character to its offset in the original."""
    out: list[str] = []
    offsets = array("L")
    after_space = False
    for offset, char in enumerate(text):
        folded = _fold_char(char)
        if folded == " ":
            if after_space:
                continue
            after_space = True
        elif not folded:
            continue
        else:
            if folded == "-" and after_space and out:
                del out[-1], offsets[-1]
            after_space = folded == "-"
        out.append(folded)
        offsets.extend([offset] * len(folded))
    return "".join(out), offsets


@lru_cache(maxsize=8192)
def _fold_char(char: str) -> str:
    if char in _MARKS:
        return _MARKS[char]
    if char == "*":
        return ""
    if char.isspace():
        return " "
    if unicodedata.category(char) == "Cf":  # zero-width joiners, soft hyphens, byte order marks
        return ""
    return unicodedata.normalize("NFKD", char).casefold()


class NumberedContext:
    """The chunks of a record: numbered, packed, and prepared for looking up quotes."""

    def __init__(self, chunks: Sequence[Chunk], *, pack_chars: int, max_packs: int) -> None:
        self._chunks = chunks
        self._folded: dict[int, FoldedText] = {}
        shown = [NumberedText(number=n, text=c.text) for n, c in enumerate(chunks, start=1) if c.text]
        packs = pack_chunks(shown, pack_chars)
        self.packs = packs[:max_packs]
        self.cut = len(packs) > max_packs
        """Whether some packs are not shown."""

    def ids_of(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Return the ids of the chunks with these numbers."""
        return tuple(dict.fromkeys(self._chunks[number - 1].id for number in numbers))

    def find_quote(self, number: int, quote: str) -> str | None:
        """Return the chunk's own text of the quote, if the chunk contains it."""
        if number not in self._folded:
            self._folded[number] = FoldedText(self._chunks[number - 1].text or "")
        return self._folded[number].find(quote)


_SEARCHED_CHARS = 3000
"""Characters at the beginning of a chunk in which a sentence to copy is searched."""
_LEAST_LETTERS, _LEAST_CHANGED_LETTERS, _MOST_LETTERS = 24, 12, 200
_END = re.compile(r"[.!。！।؟][\"'”’)\]»」』]*\Z")
_DIGIT = re.compile(r"\d")
_ABOUT_JUDGING = re.compile(
    r"support|contradict|mention|verdict|claim|json|instruct|ignore|system|assistant|prompt|label|[<>{}`\[\]#]",
    re.IGNORECASE,
)
"""Words of an instruction to the judge: a sentence with one is not copied, since that would repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaim:
    """A canary claim."""

    number: int
    text: str
    supported: bool
    """The verdict that the judge must give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaims:
    """Adds canary claims to the requests about one record; the same record always gets the same ones."""

    seed: str
    """A code that no author of a text can predict."""
    first_number: int
    """The first number of canary claims; the record's own claims keep their numbers."""
    rate: float = 1.0
    """Share of the records that get canary claims."""

    def among(self, chunks: Sequence[NumberedText]) -> tuple[CanaryClaim, ...]:
        """Choose the canary claims of requests with these chunks, in the order of their numbers."""
        if not chunks or not self._chosen:
            return ()
        chance = self._chance(f"texts {chunks[0].number}")
        texts = [(_changed_sentence(chunks, chance), False), (_sentence_of(chunks, chance), True)]
        chance.shuffle(texts)
        found = [(text, supported) for text, supported in texts if text]
        return tuple(
            CanaryClaim(number=number, text=text, supported=supported)
            for number, (text, supported) in enumerate(found, start=self.first_number)
        )

    def weave(
        self, claims: Sequence[NumberedText], canaries: Iterable[CanaryClaim]
    ) -> tuple[NumberedText, ...]:
        """Insert the canary claims at random positions; the other claims keep their order."""
        woven = list(claims)
        chance = self._chance(f"places {[claim.number for claim in claims]}")
        for canary in canaries:
            canary_claims = NumberedText(number=canary.number, text=canary.text)
            woven.insert(chance.randrange(len(woven) + 1), canary_claims)
        return tuple(woven)

    @property
    def _chosen(self) -> bool:
        return self._chance("rate").random() < self.rate

    def _chance(self, purpose: str) -> Random:
        # a string seed would depend on an algorithm that may change
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return Random(int.from_bytes(digest[:8]))


def check_canaries(canaries: Iterable[CanaryClaim], said: Iterable[tuple[int, bool]]) -> int:
    """Count the canary claims; the judge got all of them right.

    ``said`` holds numbers and whether the judge called the claim supported.

    Raises:
        JudgeCompromised: it got one wrong, or gave no verdict on it.
    """
    heard, planted = dict(said), tuple(canaries)
    for canary in planted:
        if (supported := heard.get(canary.number)) != canary.supported:
            kind = f"a sentence of the chunks{'' if canary.supported else ' with another number or name'}"
            what = "gave no verdict on" if supported is None else "called"
            called = "" if supported is None else f" {'' if supported else 'not '}supported"
            raise JudgeCompromised(
                f"the judge {what} {kind}{called}: what it says of this record is not to be believed",
                usage=Usage(),  # the reply's usage is already counted
            )
    return len(planted)


def _sentence_of(chunks: Sequence[NumberedText], chance: Random) -> str | None:
    """Choose one of the plainest complete sentences."""
    order = list(chunks)
    chance.shuffle(order)
    found: list[tuple[int, str]] = []
    for chunk in order:
        found += _plantable(chunk.text[:_SEARCHED_CHARS], _LEAST_LETTERS)
        if any(oddness == 0 for oddness, _ in found):
            break
    least = min((oddness for oddness, _ in found), default=0)
    alike = [sentence for oddness, sentence in found if oddness == least]
    return " ".join(chance.choice(alike).split()) if alike else None


def _oddness(sentence: str) -> int:
    # a line break may separate list items; numbers are what another chunk contradicts most likely
    return 2 * ("\n" in sentence) + bool(_DIGIT.search(sentence))


@lru_cache(maxsize=256)  # retrievers often return the same chunks
def _plantable(text: str, least: int) -> tuple[tuple[int, str], ...]:
    sentences = (sentence.text for sentence in split_sentences(text))
    return tuple((_oddness(sentence), sentence) for sentence in sentences if _may_be_canary(sentence, least))


def _may_be_canary(sentence: str, least: int) -> bool:
    # scripts without spaces need fewer letters
    least = least if sentence.isascii() else least // 3
    fits = least <= sum(map(str.isalpha, sentence)) <= _MOST_LETTERS
    return fits and bool(_END.search(sentence)) and not _ABOUT_JUDGING.search(sentence)


_WHOLE_NUMBER = re.compile(r"(?<![\w.,:/+$€£-])[0-9]{1,6}(?![\w:/+-]|[.,][0-9])")
"""A whole number that is no part of a date, range, decimal or identifier."""
_BOUNDS = re.compile(
    r"\b(?:least|most|to|than|over|under|above|below|within|since|until|till|before|after|by|from|between|or"
    r"|about|around|approximately|nearly|almost|roughly|maximum|minimum"
    r"|mindestens|höchstens|bis|über|unter|seit|vor|nach|ab|von|zwischen|oder|etwa|rund|ca|fast|maximal|binnen"
    r"|moins|plus|jusqu|dès|depuis|avant|après|entre|environ|près|sous|ou"
    r"|menos|más|hasta|desde|antes|después|un[oa]s|casi|alrededor|máximo|mínimo|o"
    r"|meno|più|fino|oltre|da|entro|prima|dopo|tra|fra|circa|quasi|almeno|massimo|minimo"
    r"|mais|até|após|depois|cerca|quase|pelo|em"
    r"|менее|более|до|с|от|после|около|между|почти|или"
    r"|أكثر|أقل|حتى|منذ|قبل|بعد|حوالي|نحو|أو|से|तक|लगभग|कम|अधिक|या)\b"
    r"|超过|以上|以下|以内|至少|最多|约|約|未満|まで|より|이상|이하|이내|최대|최소|약|넘",
    re.IGNORECASE,
)
"""Words near a number that another number may satisfy, too: "at least 3" follows from "at least 5"."""
_NAME = re.compile(r"(?<=[a-zß-ÿ,] )[A-ZÀ-Þ][a-zß-ÿ]{3,}(?!\w)")
_OTHER_NAMES = ("Hartley", "Lindqvist", "Marlow", "Alderton", "Winslow", "Castell", "Ferrand", "Osterby")


def _changed_sentence(chunks: Sequence[NumberedText], chance: Random) -> str | None:
    """Copy a sentence with another number, or else another name; ``None`` if none has one to change."""
    known = "\n".join(chunk.text for chunk in chunks)
    found = [
        each
        for chunk in chunks
        for _, each in _plantable(chunk.text[:_SEARCHED_CHARS], _LEAST_CHANGED_LETTERS)
    ]
    sentences = [" ".join(sentence.split()) for sentence in found]
    chance.shuffle(sentences)
    for change in (_with_other_number, _with_other_name):
        for sentence in sentences:
            if changed := change(sentence, known, chance):
                return changed
    return None


def _with_other_number(sentence: str, known: str, chance: Random) -> str | None:
    """Exchange the last two digits, so that a year stays a year; no chunk has the new number."""
    for number in _WHOLE_NUMBER.finditer(sentence):
        before, after = sentence[: number.start()], sentence[number.end() :]
        if _BOUNDS.search(" ".join([*before[-40:].split()[-3:], *after[:40].split()[:2]])):
            continue
        kept, digits = number[0][:-2], number[0][-2:]
        others = range(2, 10) if len(digits) == 1 else range(10, 100)
        # the first digit differs, so that no rounding makes them equal
        new = [f"{kept}{other}" for other in others if str(other)[0] != digits[0]]
        if new := [one for one in new if one not in known]:
            return before + chance.choice(new) + after
    return None


def _with_other_name(sentence: str, known: str, chance: Random) -> str | None:
    names = list(_NAME.finditer(sentence))
    others = [name for name in _OTHER_NAMES if name not in known]
    if not names or not others:
        return None
    name = chance.choice(names)
    return sentence[: name.start()] + chance.choice(others) + sentence[name.end() :]
