"""A loaded verifier: reads windows beside claims, and says how probable support and contradiction are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragtrace.errors import JudgeNonsense, JudgeRefused
from ragtrace.judge.nli._families import Family, Layout, Meaning
from ragtrace.judge.nli._folder import ModelFolder
from ragtrace.judge.nli._windows import Window
from ragtrace.model import Usage

Numbers: TypeAlias = NDArray[np.float64]
Offsets: TypeAlias = list[tuple[int, int]]

_HHEM: Final = (
    "Determine if the hypothesis is true given the premise?\n\nPremise: {passage}\n\nHypothesis: {claim}"
)
_LETTUCE: Final = "Summarize the following text:\n{passage}\noutput:"
"""LettuceDetect was trained on RAGTruth's prompts; this one needs no question."""
_KNOWN_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_STEP: Final = 32
"""Claims of about the same length share windows."""
_PROBE: Final = ("Refunds take 14 days.", "The shop is open on Sundays.", "Returns are free of charge.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPair:
    """A window and a claim, as the model reads them."""

    claim: int
    """The claim's number."""
    window: Window
    ids: list[int]
    types: list[int]
    claim_tokens: range = range(0)
    """The places of the claim's tokens; only for models that classify tokens."""
    claim_spans: tuple[tuple[int, int], ...] = ()
    """Start and end of each of them in the claim."""

    def parts(self, claim: str, places: Iterable[int]) -> list[str]:
        """Return the parts of the claim that these of its tokens make up."""
        spans = _joined(self.claim_spans[at] for at in places)
        return [claim[start:end].strip() for start, end in spans]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFinding:
    """What the model says about a pair."""

    pair: WindowPair
    support: float
    contradiction: float
    novel: tuple[float, ...] = ()
    """By token of the claim: the probability that the window does not support it."""


class Verifier:
    """A model in memory. It may be used by several threads."""

    def __init__(
        self, folder: ModelFolder, family: Family, *, window: int, session: Any, tokenizer: Any
    ) -> None:
        self._folder = folder
        self._family = family
        self._window = window
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = [given.name for given in session.get_inputs()]
        names = [given.name for given in session.get_outputs()]
        self._output = "logits" if "logits" in names else names[0]

    @classmethod
    def load(cls, folder: ModelFolder, family: Family, *, window: int, threads: int) -> Verifier:
        """Load a model and try it.

        Raises:
            JudgeRefused: it cannot be loaded, is for another task, or calls a sentence a contradiction of
                itself; the message names the file.
        """
        found = cls(
            folder,
            family,
            window=window,
            session=_session(folder, threads),
            tokenizer=_tokenizer(folder),
        )
        found._check_interface()
        found._check_labels()
        return found

    @cached_property
    def _marks(self) -> int:
        """How many tokens stand around passage and claim."""
        return len(self._pair("", "", claim=0, window=Window(chunk=0, text="")).ids)

    def claim_length(self, claim: str) -> int:
        """Return how many tokens a claim has."""
        return len(self._tokenizer.encode(claim, add_special_tokens=False).ids)

    @property
    def longest_claim(self) -> int:
        """How many tokens a claim may have: half the window is the passage's."""
        return max(0, (self._window - self._marks) // 2)

    def room_beside(self, claim_tokens: int) -> int:
        """Return how many tokens of a passage fit beside a claim; the same for claims of similar length."""
        return max(1, self._window - self._marks - -(-claim_tokens // _STEP) * _STEP)

    def tokens_of(self, text: str) -> Offsets:
        """Return start and end of each token of a text, in characters."""
        offsets: Offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets

    def pair(self, claim: int, text: str, window: Window) -> WindowPair:
        """Put a window and a claim together."""
        return self._pair(window.text, text, claim=claim, window=window)

    def read(self, pairs: Sequence[WindowPair]) -> list[PairFinding]:
        """Let the model read pairs, all at once.

        Raises:
            JudgeNonsense: it gave no numbers, or others than its family gives.
        """
        length = max(len(pair.ids) for pair in pairs)
        feed = {
            "input_ids": _padded([pair.ids for pair in pairs], length, self._padding),
            "attention_mask": _padded([[1] * len(pair.ids) for pair in pairs], length, 0),
            "token_type_ids": _padded([pair.types for pair in pairs], length, 0),
        }
        logits = self._run({name: feed[name] for name in self._inputs})
        return [self._finding(pair, of) for pair, of in zip(pairs, logits, strict=True)]

    @property
    def _padding(self) -> int:
        found = (self._tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
        return next((int(number) for number in found if number is not None), 0)

    def _run(self, feed: Mapping[str, NDArray[np.int64]]) -> Numbers:
        try:
            [logits] = self._session.run([self._output], feed)
        except Exception as exc:
            raise JudgeNonsense(f"{self._folder.onnx} failed: {_first_line(exc)}", usage=_CALL) from exc
        return self._checked(np.asarray(logits, dtype=np.float64))

    def _checked(self, logits: Numbers) -> Numbers:
        wanted = 3 if self._family.meaning is Meaning.TOKENS else 2
        if logits.ndim == 3 and self._family.layout is Layout.PROMPT:
            logits = logits[:, 0]  # HHEM is exported as it is: it classifies the first token
        if logits.ndim != wanted or logits.shape[-1] not in self._family.outputs:
            raise JudgeNonsense(self._other_outputs(logits.shape), usage=_CALL)
        if not np.isfinite(logits).all():
            raise JudgeNonsense(
                f"{self._folder.onnx} gave NaN or infinity in place of a number: its file is damaged, or"
                " overflows in its precision: take the float32 or int8 file (?file=)",
                usage=_CALL,
            )
        return logits

    def _finding(self, pair: WindowPair, logits: Numbers) -> PairFinding:
        family = self._family
        if family.meaning is Meaning.TOKENS:
            novel = tuple(float(p) for p in _softmax(logits)[list(pair.claim_tokens), 1])
            return PairFinding(pair=pair, support=1 - max(novel, default=1.0), contradiction=0.0, novel=novel)
        if logits.shape[-1] == 1:
            logits = np.array([0.0, logits[0]])
        chances = _softmax(logits)
        against = 0.0 if family.contradiction is None else float(chances[family.contradiction])
        return PairFinding(pair=pair, support=float(chances[family.entailment]), contradiction=against)

    def _pair(self, passage: str, text: str, *, claim: int, window: Window) -> WindowPair:
        if self._family.layout is Layout.PAIR:
            if self._family.meaning is Meaning.TOKENS:
                passage = _LETTUCE.format(passage=passage)
            found = self._tokenizer.encode(passage, text)
            own = [at for at, sequence in enumerate(found.sequence_ids) if sequence == 1]
            places = range(own[0], own[-1] + 1) if own else range(0)
            return WindowPair(
                claim=claim,
                window=window,
                ids=found.ids,
                types=found.type_ids,
                claim_tokens=places,
                claim_spans=tuple(found.offsets[at] for at in places),
            )
        ids = self._joined_ids(passage, text)
        return WindowPair(claim=claim, window=window, ids=ids, types=[0] * len(ids))

    def _joined_ids(self, passage: str, claim: str) -> list[int]:
        if self._family.layout is Layout.PROMPT:
            prompt = self._tokenizer.encode(_HHEM.format(passage=passage, claim=claim))
            return [self._padding, *prompt.ids]
        marks = self._tokenizer.encode("").ids
        before, after = marks[:-1], marks[-1:]
        parts = (self._tokenizer.encode(text, add_special_tokens=False).ids for text in (passage, claim))
        passage_ids, claim_ids = parts
        return [*before, *passage_ids, *after, *claim_ids, *after]

    def _check_interface(self) -> None:
        if unknown := [name for name in self._inputs if name not in _KNOWN_INPUTS]:
            raise JudgeRefused(
                f"{self._folder.onnx} wants the input {', '.join(unknown)}: the judge `nli` expects an"
                " encoder that"
                f" takes {', '.join(_KNOWN_INPUTS)}"
            )

    def _check_labels(self) -> None:
        """Let it compare sentences with themselves, which shows swapped labels and damaged files."""
        pairs = [self.pair(at, text, Window(chunk=0, text=text)) for at, text in enumerate(_PROBE)]
        try:
            found = self.read(pairs)
        except JudgeNonsense as exc:
            raise JudgeRefused(str(exc)) from exc
        wrong = [finding for finding in found if finding.support < max(finding.contradiction, _LEAST_OWN)]
        if len(wrong) > len(found) // 2:
            support = max(finding.support for finding in wrong)
            raise JudgeRefused(
                f"{self._folder.onnx} says of sentences beside themselves that they are not supported"
                " (probability"
                f" {support:.2f}): its labels seem to be swapped ({self._folder.described.place}:"
                " `id2label`; or"
                f" say their order with ?labels=), or it is no verifier of the family {self._family.name!r}"
            )

    def _other_outputs(self, shape: tuple[int, ...]) -> str:
        per = "token" if self._family.meaning is Meaning.TOKENS else "pair"
        return (
            f"{self._folder.onnx} gives {shape[-1] if shape else 0} numbers in the shape {list(shape)},"
            " but a model"
            f" of the family {self._family.name!r} with these labels gives {self._family.expected} a"
            f" {per}: is it a"
            " model for another task?"
        )


_CALL: Final = Usage(calls=1)
_LEAST_OWN: Final = 0.2
"""A verifier supports a sentence by itself with more than this."""


def _session(folder: ModelFolder, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised
    try:
        return onnxruntime.InferenceSession(
            str(folder.onnx), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as exc:
        raise JudgeRefused(f"{folder.onnx} cannot be loaded: {_why(exc)}") from exc


def _why(exc: Exception) -> str:
    text = _first_line(exc)
    if "NOT_IMPLEMENTED" in text or "float16" in text:
        return (
            "this CPU's runtime lacks an operation of it, maybe in float16: take the float32 or int8"
            f" file ({text})"
        )
    if "NO_SUCHFILE" in text or "external data" in text.lower():
        return f"a file with its weights is missing beside it ({text})"
    return text


def _first_line(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0][:300]


def _tokenizer(folder: ModelFolder) -> Any:
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(folder.tokenizer))
    except Exception as exc:
        raise JudgeRefused(f"{folder.tokenizer} is no tokenizer: {_first_line(exc)}") from exc
    found.no_truncation()
    found.no_padding()
    found.encode_special_tokens = True  # a chunk that says `[SEP]` must not end the passage
    return found


def _padded(rows: Sequence[Sequence[int]], length: int, padding: int) -> NDArray[np.int64]:
    return np.array([[*row, *[padding] * (length - len(row))] for row in rows], dtype=np.int64)


def _softmax(logits: Numbers) -> Numbers:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join spans that touch, or that only a space parts."""
    start, end = -1, -1
    for first, last in spans:
        if start >= 0 and first <= end + 1:
            end = last
            continue
        if start >= 0:
            yield start, end
        start, end = first, last
    if start >= 0:
        yield start, end
