"""The families of verifiers: how each reads a passage and a claim, and what its numbers mean.

Sources: the models' cards and configurations, and the code of MiniCheck and LettuceDetect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ragtrace.errors import ConfigError


class Layout(StrEnum):
    """How passage and claim are put together."""

    PAIR = "pair"
    """As the tokenizer puts pairs together."""
    JOINED = "joined"
    """One text, with one separator between the two (MiniCheck)."""
    PROMPT = "prompt"
    """In a sentence that asks the question (HHEM)."""


class Meaning(StrEnum):
    """What the model's numbers are."""

    CLASSES = "classes"
    """A number a label, for the pair."""
    ONE_LOGIT = "one logit"
    """The logit of support, or a number each for no and yes."""
    TOKENS = "tokens"
    """A number each for sound and hallucinated, for every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a model is used."""

    name: str
    layout: Layout
    meaning: Meaning
    window: int
    """Tokens that it reads at once, unless its configuration allows fewer."""
    entailment: int = 1
    """The place of the label that says a claim is supported."""
    contradiction: int | None = None
    outputs: tuple[int, ...] = (2,)
    """How many numbers a pair or token may have."""

    @property
    def expected(self) -> str:
        """How many numbers are expected, for messages."""
        return " or ".join(map(str, self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a model's configuration says about it."""

    place: str
    """The configuration file, for messages."""
    names: tuple[str, ...]
    """The names it goes by: its own, and its folder's."""
    model_type: str
    architectures: tuple[str, ...]
    labels: tuple[str, ...]
    """In the order of its numbers; empty if there are none."""


_KNOWN_ORDERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"cross-encoder/nli-", ("contradiction", "entailment", "neutral")),
    (r"MoritzLaurer/.*zeroshot", ("entailment", "not_entailment")),
    (r"MoritzLaurer/.*(mnli|anli|wanli)", ("entailment", "neutral", "contradiction")),
    (r"ynie/.*nli", ("entailment", "neutral", "contradiction")),
    (
        r"(facebook/bart|microsoft/deberta|(FacebookAI/|^)roberta).*-mnli",
        ("contradiction", "neutral", "entailment"),
    ),
)
_WORDS: Final = {
    "entailment": "entailment",
    "entails": "entailment",
    "entail": "entailment",
    "supported": "entailment",
    "supports": "entailment",
    "contradiction": "contradiction",
    "contradicts": "contradiction",
    "contradict": "contradiction",
    "refutes": "contradiction",
    "neutral": "neutral",
    "not enough info": "neutral",
    "not_entailment": "not_entailment",
    "not entailment": "not_entailment",
}
_SETS: Final = (
    {"entailment", "neutral", "contradiction"},
    {"entailment", "contradiction"},
    {"entailment", "not_entailment"},
)
_OTHERS: Final = {
    "minicheck": Family(name="minicheck", layout=Layout.JOINED, meaning=Meaning.ONE_LOGIT, window=512),
    "hhem": Family(name="hhem", layout=Layout.PROMPT, meaning=Meaning.ONE_LOGIT, window=512, outputs=(1, 2)),
    "tokens": Family(name="tokens", layout=Layout.PAIR, meaning=Meaning.TOKENS, window=4096),
}


def family_of(described: Described, *, named: str | None, labels: Sequence[str]) -> Family:
    """Return how a model is used: as ``named``, else as its configuration says.

    Args:
        described: The configuration.
        named: The name of the family, if the address gives it.
        labels: The order of the labels, if the address gives it.

    Raises:
        ConfigError: it is a model for something else, or its labels are unknown or contradict themselves.
    """
    name = named or _recognized(described)
    if name != "nli":
        return _OTHERS[name]
    order = _order(described, labels)
    return Family(
        name="nli",
        layout=Layout.PAIR,
        meaning=Meaning.CLASSES,
        window=512,
        entailment=order.index("entailment"),
        contradiction=order.index("contradiction") if "contradiction" in order else None,
        outputs=(len(order),),
    )


def _recognized(described: Described) -> str:
    known = " ".join((*described.names, described.model_type)).lower()
    if "minicheck" in known:
        return "minicheck"
    if "hhem" in known or "hallucination_evaluation_model" in known:
        return "hhem"
    if any(name.endswith("ForTokenClassification") for name in described.architectures):
        return "tokens"
    if any(name.endswith("ForSequenceClassification") for name in described.architectures):
        return "nli"
    found = ", ".join(described.architectures) or "nothing"
    raise ConfigError(
        f"{described.place}: `architectures` says {found}, which is for another task: the judge `nli`"
        " expects a"
        " …ForSequenceClassification or …ForTokenClassification (or add ?family=nli, minicheck, hhem or"
        " tokens)"
    )


def _order(described: Described, given: Sequence[str]) -> tuple[str, ...]:
    """Return the labels in order, in words of our own."""
    if given:
        return _read(given, "the setting `labels`")
    known = _known_order(described.names)
    if not described.labels or all(label.upper().startswith("LABEL_") for label in described.labels):
        if known is None:
            raise ConfigError(
                f"{described.place}: `id2label` gives the labels no names, and the model is none that"
                " ragtrace"
                " knows: say their order with ?labels=entailment,neutral,contradiction"
            )
        return known
    order = _read(described.labels, f"{described.place}: `id2label`")
    if known is not None and set(known) == set(order) and known != order:
        raise ConfigError(
            f"{described.place}: `id2label` says {', '.join(order)}, but this model is known to give"
            f" {', '.join(known)}: they seem to be swapped. Correct the file, or say their order with"
            " ?labels="
        )
    return order


def _read(labels: Sequence[str], place: str) -> tuple[str, ...]:
    order = tuple(_WORDS.get(label.lower(), "") for label in labels)
    if len(set(order)) != len(order) or set(order) not in _SETS:
        raise ConfigError(
            f"{place} has the labels {', '.join(labels)}: expected entailment, neutral and contradiction"
            " in any"
            " order, or entailment and not_entailment"
        )
    return order


def _known_order(names: Sequence[str]) -> tuple[str, ...] | None:
    found = (
        order for pattern, order in _KNOWN_ORDERS for name in names if re.search(pattern, name, re.IGNORECASE)
    )
    return next(found, None)
