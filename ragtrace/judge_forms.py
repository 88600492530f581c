"""What the judge is given and asked for in each step: the forms of its answers and the inputs of its prompts.

Every string and list of a reply is bounded: free strings make small models run to the token limit. What a
form cannot say (ids that exist, quotes that are real) is checked in [`steps`][ragtrace.metrics.steps].
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

ClaimKind = Literal["factual", "opinion", "meta", "refusal"]
Relevance = Literal["direct", "supporting", "irrelevant"]
ChunkRelevance = Literal[0, 1, 2]
YesNoQuestion = Literal["support", "contradict"]
VerdictWord = Literal["supported", "contradicted", "not_mentioned"]

Number: TypeAlias = int
"""An id that code gave out. The form has no range for it: ids that nobody asked for are rejected singly."""


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True)


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
    surroundings: tuple[NumberedText, ...] = ()
    """Other sentences of the answer, shown for the sense alone."""
    earlier: tuple[TurnText, ...] = ()
    """The conversation before the question, shown for the sense alone."""


class ExtractedClaim(_Form):
    """A statement that the judge found in the answer."""

    id: Number
    sentence_ids: list[Number] = Field(max_length=16)
    text: str = Field(max_length=1000)
    kind: ClaimKind


class ExtractReply(_Form):
    """Step A: the statements of the answer."""

    claims: list[ExtractedClaim] = Field(max_length=400)
    refusal: bool


class VerifyInput(_Form):
    """Step B: the retrieved chunks, and the claims to look up in them."""

    chunks: tuple[NumberedText, ...]
    claims: tuple[NumberedText, ...]


class GivenVerdict(_Form):
    """What the judge says about one claim. The evidence comes before the label: it is looked for first."""

    id: Number
    chunks: list[Number] = Field(max_length=16)
    quote: str = Field(max_length=1000)
    label: VerdictWord
    reason: str = Field(max_length=400)


class VerifyReply(_Form):
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


class TruthsInput(_Form):
    """Step T: the retrieved chunks, and how many facts of each are wanted at most."""

    limit: int | None
    chunks: tuple[NumberedText, ...]


class GivenTruths(_Form):
    """The facts that the judge found in one chunk."""

    id: Number
    truths: list[Annotated[str, Field(max_length=1000)]] = Field(max_length=200)


class TruthsReply(_Form):
    """Step T: the facts of each chunk."""

    chunks: list[GivenTruths] = Field(max_length=400)


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("give 0, 1 or 2")  # noqa: TRY004  pydantic reports ValueError
    return value


class GivenGrade(_Form):
    """What the judge says a chunk is worth. The reason comes before the grade: it is thought of first."""

    id: Number
    reason: str = Field(max_length=200)
    relevance: Annotated[ChunkRelevance, BeforeValidator(_no_truth_value)]


class ChunksReply(_Form):
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
    relevance: Relevance


class RelevanceReply(_Form):
    """Step R: one grade a statement."""

    statements: list[GivenRelevance] = Field(max_length=400)


class QuestionsInput(_Form):
    """Step Q: the answer alone."""

    answer: str


class QuestionsReply(_Form):
    """Step Q: questions that the answer would answer."""

    questions: list[Annotated[str, Field(max_length=400)]] = Field(max_length=5)
    noncommittal: bool
