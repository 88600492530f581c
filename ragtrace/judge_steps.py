"""The judge steps as metrics see them: names, prompts and results. `ragtrace.metrics` runs them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

from ragtrace.errors import ConfigError
from ragtrace.model import ChunkVerdict, Claim, Verdict, VerdictLabel

StepName: TypeAlias = Literal["extract", "relevance", "verify", "chunks", "recall", "questions", "criteria"]
STEPS: tuple[StepName, ...] = get_args(StepName)
LATER: frozenset[str] = frozenset({"criteria"})
"""Steps, and their prompts, that no metric uses without declaring it: they came after it had to."""
PromptName: TypeAlias = Literal[
    "extract",
    "relevance",
    "verify",
    "verify_yes_no",
    "verify_again",
    "chunks",
    "retrieval",
    "recall",
    "questions",
    "criteria",
]
PROMPTS: tuple[PromptName, ...] = get_args(PromptName)


HEADER_FENCE = "---\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The static instructions of a judge step."""

    name: str
    version: str
    text: str
    sha256: str
    """Digest of the file with its header; recorded with every score."""

    @classmethod
    def parse(cls, source: str) -> Prompt:
        """Read a prompt file: a ``---`` fenced header with ``name`` and ``version``, then the text.

        Raises:
            ConfigError: the header is missing or incomplete.
        """
        opening, header, text = [*source.split(HEADER_FENCE, 2), "", ""][:3]
        fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
        if opening or not {"name", "version"} <= fields.keys() or not text.strip():
            raise ConfigError("a prompt file must begin with a `---` header that gives `name` and `version`")
        digest = hashlib.sha256(source.encode()).hexdigest()
        return cls(name=fields["name"], version=fields["version"], text=text.strip(), sha256=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of an answer: a fact, an opinion, a question back, a heading or a refusal."""

    claim: Claim
    """Numbered among the statements of every kind."""
    sentences: tuple[int, ...]
    """Numbers of the sentences it was drawn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExtraction:
    """The result of step A."""

    claims: tuple[Claim, ...]
    """The factual claims, in the order of the answer, numbered among themselves."""
    statements: tuple[Statement, ...]
    """Db of every kind, in the order of the answer."""
    refusal: bool
    """Whether the whole answer is a refusal."""
    sentence_coverage: float | None
    """Share of the sentences with a statement; ``None`` for an answer without sentences."""
    rejected: int
    """Number of statements that cite no sentence of the answer."""

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The sentence numbers of each of the ``claims``."""
        return tuple(
            statement.sentences for statement in self.statements if statement.claim.kind == "factual"
        )


class VerifyForm(StrEnum):
    """The form of verify requests."""

    AUTO = "auto"
    """The calibrated form, else ``json``; also ``json`` if there are no log-probabilities."""
    JSON = "json"
    """Batches of claims; verdicts with quotes in one JSON object."""
    LOGPROBS = "logprobs"
    """One claim per call: the probability that the judge says *yes*. A confidence, but no quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of step B."""

    verdicts: tuple[Verdict, ...]
    """One verdict per claim, in their order."""
    rejected: int
    """Number of verdicts with unknown ids."""
    form: VerifyForm = VerifyForm.JSON
    """The form of the requests: ``json`` or ``logprobs``."""
    canaries_passed: int = 0
    """Canary claims that the judge got right. A failed one raises ``JudgeCompromised``."""

    @property
    def quotes_unverified(self) -> int:
        """Number of verdicts that need a quote, but whose quote was not found."""
        if self.form is VerifyForm.LOGPROBS:
            return 0  # this form has no quotes
        evident = (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED)
        return sum(v.label in evident and not v.quote_verified for v in self.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """The result of step C."""

    verdicts: tuple[ChunkVerdict, ...]
    """One verdict per chunk, by rank."""
    rejected: int
    """Number of grades with unknown numbers."""
    with_reference: bool
    """Whether the judge saw a reference answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regeneration:
    """The result of step Q."""

    questions: tuple[str, ...]
    """The questions without empty and repeated ones; may be empty."""
    noncommittal: bool
    """Whether the answer evades the question or is a refusal."""
