"""What the judge is given and asked for in each step: the forms of its answers and the inputs of its prompts.

Every string and list of a reply is bounded: free strings make small models run to the token limit. What a
form cannot say (ids that exist, quotes that are real) is checked in [`steps`][ragtrace.metrics.steps].
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_SEPARATORS: Final = re.compile(r"[\W_]+")
_DIGITS: Final = re.compile(r"\d{1,9}")
_SAME: Final = {
    **dict.fromkeys(("entailed", "entailment"), "supported"),
    "contradiction": "contradicted",
    **dict.fromkeys(("unsupported", "not_supported", "neutral", "no_mention"), "not_mentioned"),
}


def _word(value: object) -> object:
    """Read ``Not mentioned`` as ``not_mentioned``."""
    if not isinstance(value, str):
        return value
    word = _SEPARATORS.sub("_", value.casefold()[:40]).strip("_")
    return _SAME.get(word, word)


def _number(value: object) -> object:
    """Read ``claim 3`` as 3; a text with two numbers stays, and is refused."""
    found = _DIGITS.findall(value[:100]) if isinstance(value, str) else ()
    return int(found[0]) if len(found) == 1 else value


ClaimKind = Literal["factual", "opinion", "question", "offer", "greeting", "meta", "refusal"]
Relevance = Literal["direct", "supporting", "irrelevant"]
ChunkRelevance = Literal[0, 1, 2]
YesNoQuestion = Literal["support", "contradict"]
VerdictWord = Literal["supported", "contradicted", "not_mentioned"]

Number: TypeAlias = Annotated[int, BeforeValidator(_number)]
"""An id that code gave out; the ids of a reply are checked against those that were asked about."""


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True)


class _NumberedReply(_Form):
    """A reply that is one list of entries, each with the number that it is about."""

    @property
    def ids(self) -> list[int]:
        """The numbers, in the order of the reply."""
        [name] = type(self).model_fields
        return [entry.id for entry in getattr(self, name)]


class NumberedText(_Form):
    """A sentence, claim or chunk under the number that the judge refers to it by."""

    number: int
    text: str


class TurnText(_Form):
    """An earlier question of a conversation and its answer."""

    question: str | None
    answer: str


class ExtractInput(_Form):
    """Step A: the sentences of an answer, and the question it answers."""

    question: str | None
    sentences: tuple[NumberedText, ...]
    headings: frozenset[int] = frozenset()
    """The numbers of sentences that are headings by their place: for judges that see no layout."""
    surroundings: tuple[NumberedText, ...] = ()
    """Other sentences of the answer, shown for the sense alone."""
    earlier: tuple[TurnText, ...] = ()
    """The conversation before the question, shown for the sense alone."""


class ExtractedClaim(_Form):
    """A statement that the judge found in the answer."""

    id: Number
    sentence_ids: list[Number] = Field(max_length=16)
    text: str = Field(max_length=1000)
    kind: Annotated[ClaimKind, BeforeValidator(_word)]


class ExtractReply(_Form):
    """Step A: the statements of the answer."""

    claims: list[ExtractedClaim] = Field(max_length=400)
    refusal: bool

    @model_validator(mode="before")
    @classmethod
    def _listed_alone(cls, given: Any) -> Any:
        claims = given.get("claims") if isinstance(given, dict) and "refusal" not in given else None
        if not claims or not isinstance(claims, list):
            return given
        kinds = [_word(claim.get("kind")) for claim in claims if isinstance(claim, dict)]
        return {**given, "refusal": all(kind == "refusal" for kind in kinds)}


class VerifyInput(_Form):
    """Step B: the retrieved chunks, and the claims to look up in them."""

    chunks: tuple[NumberedText, ...]
    question: str | None = None
    """What the claims answer; ``None`` for the sentences of a reference."""
    claims: tuple[NumberedText, ...]


class GivenVerdict(_Form):
    """What the judge says about one claim. The evidence comes before the label: it is looked for first."""

    id: Number
    chunks: list[Number] = Field(max_length=16)
    quote: str = Field(max_length=1000)
    label: Annotated[VerdictWord, BeforeValidator(_word)]
    reason: str = Field(max_length=400)
    material: bool = True
    """Whether a flaw is more than an incidental word."""


class VerifyReply(_NumberedReply):
    """Step B: one verdict a claim."""

    verdicts: list[GivenVerdict] = Field(max_length=200)


class YesNoInput(_Form):
    """Step B, one claim a call: the chunks, the claim, and what is asked about the two."""

    chunks: tuple[NumberedText, ...]
    claim: str
    question: YesNoQuestion


class ChunksInput(_Form):
    """Step C: the retrieved chunks in a shuffled order, and the question they were retrieved for."""

    question: str
    reference: str | None
    chunks: tuple[NumberedText, ...]


def _grade(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("give 0, 1 or 2")  # noqa: TRY004  pydantic reports ValueError
    return _number(value)


class GivenGrade(_Form):
    """What the judge says a chunk is worth. The reason comes before the grade: it is thought of first."""

    id: Number
    reason: str = Field(max_length=200)
    relevance: Annotated[ChunkRelevance, BeforeValidator(_grade)]


class ChunksReply(_NumberedReply):
    """Step C: one grade a chunk."""

    chunks: list[GivenGrade] = Field(max_length=400)


class RetrievalInput(_Form):
    """Steps C and D in one: the chunks, and the sentences of a reference to look up in them."""

    question: str
    chunks: tuple[NumberedText, ...]
    claims: tuple[NumberedText, ...]


class RetrievalReply(_Form):
    """Steps C and D in one: one grade a chunk, one verdict a sentence."""

    chunks: list[GivenGrade] = Field(max_length=400)
    verdicts: list[GivenVerdict] = Field(max_length=200)


class RelevanceInput(_Form):
    """Step R: the statements of an answer, and the question it answers."""

    question: str
    statements: tuple[NumberedText, ...]


class GivenRelevance(_Form):
    """What the judge says a statement is worth."""

    id: Number
    relevance: Annotated[Relevance, BeforeValidator(_word)]


class RelevanceReply(_NumberedReply):
    """Step R: one grade a statement."""

    statements: list[GivenRelevance] = Field(max_length=400)


class CriteriaInput(_Form):
    """Step K: the criteria, and the answer that is to meet them."""

    criteria: tuple[NumberedText, ...]
    question: str | None
    answer: str


class GivenCriterion(_Form):
    """What the judge says of one criterion. The evidence comes first: it is looked for first."""

    id: Number
    quote: str = Field(max_length=1000)
    reason: str = Field(max_length=400)
    met: bool


class CriteriaReply(_NumberedReply):
    """Step K: yes or no to each criterion."""

    criteria: list[GivenCriterion] = Field(max_length=200)


class QuestionsInput(_Form):
    """Step Q: the answer alone."""

    answer: str


class QuestionsReply(_Form):
    """Step Q: questions that the answer would answer."""

    questions: list[Annotated[str, Field(max_length=400)]] = Field(max_length=5)
    noncommittal: bool
