"""A verifier: the folder of an ONNX model, what its numbers mean, and how it reads a claim beside a window.

Sources: the models' cards and configurations, and the code of MiniCheck and LettuceDetect.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ragtrace.errors import ConfigError, JudgeNonsense, JudgeRefused
from ragtrace.model import Usage

Numbers: TypeAlias = NDArray[np.float64]
FamilyName: TypeAlias = Literal["nli", "minicheck", "hhem", "tokens"]
"""How passage and claim are put together, and what the numbers are: *nli*, a pair and a number a label;
*minicheck*, one text with one separator, and a number each for no and yes; *hhem*, a sentence that asks, and
the logit of support; *tokens*, a pair, and a number each for sound and hallucinated for every token."""

_CONFIG: Final = "config.json"
_TOKENIZER: Final = "tokenizer.json"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_PREFERRED: Final = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/model_int8.onnx")
_SAMPLE_BYTES: Final = 1 << 20
_BEFORE_TEXT: Final = 2
"""Positions that RoBERTa's models keep for themselves."""
_WORDS: Final = {
    **dict.fromkeys(("entailment", "entails", "entail", "supported", "supports"), "entailment"),
    **dict.fromkeys(("contradiction", "contradicts", "contradict", "refutes"), "contradiction"),
    **dict.fromkeys(("neutral", "not enough info"), "neutral"),
    **dict.fromkeys(("not_entailment", "not entailment"), "not_entailment"),
}
_SETS: Final = (
    {"entailment", "neutral", "contradiction"},
    {"entailment", "contradiction"},
    {"entailment", "not_entailment"},
)
_HHEM: Final = (
    "Determine if the hypothesis is true given the premise?\n\nPremise: {passage}\n\nHypothesis: {claim}"
)
_LETTUCE: Final = "Summarize the following text:\n{passage}\noutput:"
"""LettuceDetect was trained on RAGTruth's prompts; this one needs no question."""
_STEP: Final = 32
"""Claims of about the same length share windows."""
_PROBE: Final = ("Refunds take 14 days.", "The shop is open on Sundays.", "Returns are free of charge.")
_LEAST_OWN: Final = 0.2
"""A verifier supports a sentence by itself with more than this."""
_CALL: Final = Usage(calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a model is used."""

    name: FamilyName
    window: int = 512
    """Tokens that it reads at once, unless its configuration allows fewer."""
    entailment: int = 1
    """The place of the label that says a claim is supported."""
    contradiction: int | None = None
    outputs: tuple[int, ...] = (2,)
    """How many numbers a pair or token may have."""


class _Config(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    architectures: list[str] = []
    model_type: str = ""
    id2label: dict[int, str] = {}
    max_position_embeddings: int | None = None
    original: str = Field(default="", alias="_name_or_path")

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for _, label in sorted(self.id2label.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """The files of a verifier, checked as far as possible without loading it."""

    name: str
    """For scores: the folder's."""
    onnx: Path
    tokenizer: Path
    config: Path
    family: Family
    window: int
    """Tokens that the model reads at once: chunk, claim and marks."""
    digest: str
    """Changes with the files."""

    @classmethod
    def open(
        cls, where: str, *, file: str | None, family: FamilyName | None, labels: Sequence[str]
    ) -> ModelFolder:
        """Find a model's files.

        Args:
            where: A folder.
            file: The ONNX file, relative to the folder; by default the usual one, or the only one.
            family: By default as the configuration says.
            labels: The names of its outputs, in order; by default those of the configuration.

        Raises:
            ConfigError: a file is missing or malformed, or the model is for something else; the message
                names the file.
        """
        folder = Path(where).expanduser()
        config, tokenizer = folder / _CONFIG, folder / _TOKENIZER
        for needed in (config, tokenizer):
            if not needed.is_file():
                raise ConfigError(
                    f"the judge `nli`: there is no {str(needed)!r}: name a folder with a model, exported with"
                    " its fast tokenizer (from the hub: `hf download ORG/NAME --local-dir FOLDER`)"
                )
        try:
            read = _Config.model_validate_json(config.read_bytes())
            limit = (
                json.loads(limits.read_bytes()).get("model_max_length")
                if (limits := folder / _TOKENIZER_CONFIG).is_file()
                else None
            )
        except (OSError, ValueError, AttributeError) as exc:
            raise ConfigError(f"{folder}: its configuration cannot be read: {_first_line(exc)}") from None
        name = folder.name or folder.resolve().name
        onnx = folder / _chosen_file(folder, file)
        # with the files that hold its weights, if they are apart
        beside = (f"{onnx.name}_data", f"{onnx.name}.data", f"{onnx.stem}.data", "weights.pb")
        parts = [onnx, *(path for each in beside if (path := onnx.with_name(each)).is_file())]
        own = read.max_position_embeddings
        if own is not None and "roberta" in read.model_type.lower():
            own -= _BEFORE_TEXT
        chosen = _family_of(read, config, name, named=family, labels=labels)
        known = [int(each) for each in (own, limit) if isinstance(each, int | float) and 0 < each < 2**20]
        return cls(
            name=name,
            onnx=onnx,
            tokenizer=tokenizer,
            config=config,
            family=chosen,
            window=min([chosen.window, *known]),
            digest=_digest([config, tokenizer, *parts]),
        )


def _chosen_file(folder: Path, wanted: str | None) -> str:
    paths = (path for pattern in ("*.onnx", "onnx/*.onnx") for path in folder.glob(pattern))
    found = sorted(path.relative_to(folder).as_posix() for path in paths)
    usual = [name for name in _PREFERRED if name in found]
    chosen = [wanted] if wanted in found else [] if wanted else usual[:1] or found
    if len(chosen) != 1 or chosen[0] is None:
        raise ConfigError(
            f"{folder}: choose its ONNX file with ?file= (there are: {', '.join(found) or 'none'}). To export"
            " one: `optimum-cli export onnx --model MODEL FOLDER`"
        )
    return chosen[0]


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of sizes, beginnings and ends: weights of a gigabyte are not read twice."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            found.update(f"{path.name} {size} ".encode() + file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            found.update(file.read(_SAMPLE_BYTES))
    return found.hexdigest()[:16]


def _family_of(
    config: _Config, place: Path, name: str, *, named: FamilyName | None, labels: Sequence[str]
) -> Family:
    match named or _recognized(config, place, name):
        case "minicheck":
            return Family(name="minicheck")
        case "hhem":
            return Family(name="hhem", outputs=(1, 2))
        case "tokens":
            return Family(name="tokens", window=4096)
    given = labels or config.labels
    order = tuple(_WORDS.get(label.lower(), "") for label in given)
    if len(set(order)) != len(order) or set(order) not in _SETS:
        raise ConfigError(
            f"{place}: `id2label` (or ?labels=) says {', '.join(given)}: expected entailment, neutral and"
            " contradiction in any order, or entailment and not_entailment. Say the order with"
            " ?labels=entailment,neutral,contradiction"
        )
    return Family(
        name="nli",
        entailment=order.index("entailment"),
        contradiction=order.index("contradiction") if "contradiction" in order else None,
        outputs=(len(order),),
    )


def _recognized(config: _Config, place: Path, name: str) -> FamilyName:
    known = " ".join((config.original, name, config.model_type)).lower()
    if "minicheck" in known:
        return "minicheck"
    if "hhem" in known or "hallucination_evaluation_model" in known:
        return "hhem"
    if any(name.endswith("ForTokenClassification") for name in config.architectures):
        return "tokens"
    if any(name.endswith("ForSequenceClassification") for name in config.architectures):
        return "nli"
    found = ", ".join(config.architectures) or "nothing"
    raise ConfigError(
        f"{place}: `architectures` says {found}, which is for another task: the judge `nli` expects a"
        " …ForSequenceClassification or …ForTokenClassification (or add ?family=nli, minicheck, hhem or"
        " tokens)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a chunk, verbatim."""

    chunk: int
    """The chunk's number."""
    text: str


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
        """Return the parts of the claim that these of its tokens make up, joined over a space."""
        spans: list[tuple[int, int]] = []
        for start, end in (self.claim_spans[at] for at in places):
            if spans and start <= spans[-1][1] + 1:
                start = spans.pop()[0]
            spans.append((start, end))
        return [claim[start:end].strip() for start, end in spans]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the model says about a claim beside one window, or beside several together."""

    support: float
    contradiction: float
    supporting: WindowPair
    """The pair with most support."""
    contradicting: WindowPair
    best: float
    """The support of the window that supports it most."""
    novel: tuple[float, ...] = ()
    """By token of the claim: the probability that no window supports it."""

    @classmethod
    def of(cls, pair: WindowPair, support: float, against: float, novel: tuple[float, ...] = ()) -> Self:
        """Begin with a window."""
        return cls(
            support=support,
            contradiction=against,
            supporting=pair,
            contradicting=pair,
            best=support,
            novel=novel,
        )

    def joined(self, other: Finding) -> Finding:
        """Add a window. A token is supported if any window supports it, and a claim if all its tokens are."""
        novel = tuple(map(min, self.novel, other.novel))
        best = max(self.best, other.best)
        is_worse = other.contradiction > self.contradiction
        return Finding(
            support=1 - max(novel) if novel else best,
            contradiction=max(self.contradiction, other.contradiction),
            supporting=other.supporting if other.best > self.best else self.supporting,
            contradicting=other.contradicting if is_worse else self.contradicting,
            best=best,
            novel=novel,
        )


@dataclass
class Verifier:
    """A model in memory. It may be used by several threads."""

    folder: ModelFolder
    session: Any = field(repr=False)
    tokenizer: Any = field(repr=False)

    @classmethod
    def load(cls, folder: ModelFolder, threads: int) -> Verifier:
        """Load a model and try it.

        Raises:
            JudgeRefused: it cannot be loaded, is for another task, or calls a sentence a contradiction of
                itself; the message names the file.
        """
        found = cls(folder=folder, session=_session(folder, threads), tokenizer=_tokenizer(folder))
        found._check_labels()
        return found

    @cached_property
    def _inputs(self) -> list[str]:
        return [given.name for given in self.session.get_inputs()]

    @cached_property
    def _output(self) -> str:
        names = [given.name for given in self.session.get_outputs()]
        return "logits" if "logits" in names else names[0]

    @cached_property
    def _marks(self) -> int:
        """How many tokens stand around passage and claim."""
        return len(self.pair(0, "", Window(chunk=0, text="")).ids)

    @cached_property
    def _padding(self) -> int:
        found = (self.tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
        return next((int(number) for number in found if number is not None), 0)

    def claim_length(self, claim: str) -> int:
        """Return how many tokens a claim has."""
        return len(self._ids(claim))

    @property
    def longest_claim(self) -> int:
        """How many tokens a claim may have: half the window is the passage's."""
        return max(0, (self.folder.window - self._marks) // 2)

    def room_beside(self, claim_tokens: int) -> int:
        """Return how many tokens of a passage fit beside a claim; the same for claims of similar length."""
        return max(1, self.folder.window - self._marks - -(-claim_tokens // _STEP) * _STEP)

    def tokens_of(self, text: str) -> list[tuple[int, int]]:
        """Return start and end of each token of a text, in characters."""
        offsets: list[tuple[int, int]] = self.tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets

    def pair(self, claim: int, text: str, window: Window) -> WindowPair:
        """Put a window and a claim together, as the family reads them."""
        passage, family = window.text, self.folder.family.name
        if family == "hhem":
            prompt = self.tokenizer.encode(_HHEM.format(passage=passage, claim=text))
            ids = [self._padding, *prompt.ids]
        elif family == "minicheck":
            marks = self.tokenizer.encode("").ids
            ids = [*marks[:-1], *self._ids(passage), *marks[-1:], *self._ids(text), *marks[-1:]]
        else:
            if family == "tokens":
                passage = _LETTUCE.format(passage=passage)
            found = self.tokenizer.encode(passage, text)
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
        return WindowPair(claim=claim, window=window, ids=ids, types=[0] * len(ids))

    def read(self, pairs: Sequence[WindowPair]) -> list[Finding]:
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
        logits = self._run({name: feed[name] for name in self._inputs if name in feed})
        return [self._finding(pair, of) for pair, of in zip(pairs, logits, strict=True)]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _run(self, feed: Mapping[str, NDArray[np.int64]]) -> Numbers:
        onnx, family = self.folder.onnx, self.folder.family
        try:
            [found] = self.session.run([self._output], feed)
        except Exception as exc:
            raise JudgeNonsense(f"{onnx} failed: {_first_line(exc)}", usage=_CALL) from exc
        logits = np.asarray(found, dtype=np.float64)
        if logits.ndim == 3 and family.name == "hhem":
            logits = logits[:, 0]  # HHEM is exported as it is: it classifies the first token
        is_by_token = family.name == "tokens"
        if logits.ndim != 2 + is_by_token or logits.shape[-1] not in family.outputs:
            raise JudgeNonsense(
                f"{onnx} gives numbers in the shape {list(logits.shape)}, but a model of the family"
                f" {family.name!r} with these labels gives {' or '.join(map(str, family.outputs))} a"
                f" {'token' if is_by_token else 'pair'}: is it a model for another task?",
                usage=_CALL,
            )
        if not np.isfinite(logits).all():
            raise JudgeNonsense(
                f"{onnx} gave NaN or infinity in place of a number: take its float32 or int8 file (?file=)",
                usage=_CALL,
            )
        return logits

    def _finding(self, pair: WindowPair, logits: Numbers) -> Finding:
        family = self.folder.family
        if family.name == "tokens":
            novel = tuple(float(p) for p in _softmax(logits)[list(pair.claim_tokens), 1])
            return Finding.of(pair, 1 - max(novel, default=1.0), 0.0, novel)
        if logits.shape[-1] == 1:
            logits = np.array([0.0, logits[0]])
        chances = _softmax(logits)
        against = 0.0 if family.contradiction is None else float(chances[family.contradiction])
        return Finding.of(pair, float(chances[family.entailment]), against)

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
                f"{self.folder.onnx} says of sentences beside themselves that they are not supported"
                f" (probability {support:.2f}): its labels seem to be swapped ({self.folder.config}:"
                " `id2label`; or say their order with ?labels=), or it is no verifier of the family"
                f" {self.folder.family.name!r}"
            )


def _session(folder: ModelFolder, threads: int) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else its import reports to Microsoft
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
        raise JudgeRefused(
            f"{folder.onnx} cannot be loaded ({_first_line(exc)}): take its float32 or int8 file (?file=),"
            " and keep the file of its weights beside it"
        ) from exc


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


def _first_line(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0][:300]


def _padded(rows: Sequence[Sequence[int]], length: int, padding: int) -> NDArray[np.int64]:
    return np.array([[*row, *[padding] * (length - len(row))] for row in rows], dtype=np.int64)


def _softmax(logits: Numbers) -> Numbers:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
