"""Tiny ONNX models of each family that the judge `nli` reads, made on the spot.

They compare tokens: the share of the claim's tokens that are in the passage says whether it is supported, and
a `not` on one side only is a contradiction. So a wrong layout, label order or window shows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

Family = Literal["nli", "minicheck", "hhem", "tokens"]

WORDS: Final = re.findall(
    r"[a-z0-9]+|[?.:!,]",
    "refunds do not take 14 days . 30 the shop is open on sundays monday and closed ? returns are free of"
    " charge"
    " determine if hypothesis true given premise : by post in store a an museum was founded 1887 london"
    " paris",
)
FILLER: Final = tuple(f"w{number}" for number in range(50))
MNLI: Final = ("contradiction", "entailment", "neutral")
CLS, SEP = 1, 2
_SURE = 24.0
_HALF = 0.9
"""The share of the claim's tokens at which the models are undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What a tiny model is like."""

    family: Family = "nli"
    labels: tuple[str, ...] = MNLI
    """As the model gives them, and by default as its configuration says."""
    window: int = 512
    nan_for: Literal["nothing", "all"] = "nothing"
    """For which pairs it gives NaN."""

    def write(self, folder: Path, *, file: str = "model.onnx", **config: Any) -> Path:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(_model(self), folder / file)
        _tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps({**self._config(), **config}))
        return folder

    def _config(self) -> dict[str, Any]:
        task = "TokenClassification" if self.family == "tokens" else "SequenceClassification"
        kind = {"nli": "DebertaV2", "minicheck": "Roberta", "hhem": "HHEMv2", "tokens": "ModernBert"}[
            self.family
        ]
        names = {"minicheck": "lytang/MiniCheck-RoBERTa-Large", "hhem": "vectara/HHEM-2.1-open"}
        found: dict[str, Any] = {
            "architectures": [f"{kind}For{task}"],
            "model_type": kind.lower(),
            "max_position_embeddings": self.window,
            "_name_or_path": names.get(self.family, ""),
        }
        if self.family == "nli":
            found["id2label"] = {str(at): label for at, label in enumerate(self.labels)}
        return found


def _tokenizer() -> Tokenizer:
    vocabulary = {"[PAD]": 0, "[CLS]": CLS, "[SEP]": SEP, "[UNK]": 3}
    for word in (*WORDS, *FILLER):
        vocabulary.setdefault(word, len(vocabulary))
    found = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    found.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    return found


class Graph:
    """Nodes and constants of a graph, by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=kind), name))
        return name

    def number(self, name: str) -> str:
        return self.node("Cast", name, to=TensorProto.FLOAT)

    def times(self, *names: str) -> str:
        first, *rest = names
        for name in rest:
            first = self.node("Mul", first, name)
        return first

    def line(self, name: str, factor: float, middle: float) -> str:
        """Return factor * (x - middle)."""
        return self.times(self.node("Sub", name, self.constant(middle)), self.constant(factor))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Per pair or token: numbers of 0 to 1."""

    share: str
    negated: str
    novel: str
    """By token: 1 for those of the claim that the passage lacks."""


def _model(of: Verifier) -> Any:
    graph = Graph()
    found = _compared(graph, of)
    output = _numbers(graph, of, found)
    graph.nodes.append(helper.make_node("Identity", [output], ["logits"]))
    inputs = ["input_ids", "attention_mask"]
    made = helper.make_graph(
        graph.nodes,
        "verifier",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        graph.constants,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _compared(graph: Graph, of: Verifier) -> _Compared:
    passage, claim = _sides(graph, of)
    ones = graph.constant([1], np.int64)
    rows = graph.node("Unsqueeze", "input_ids", graph.constant([2], np.int64))
    columns = graph.node("Unsqueeze", "input_ids", ones)
    same = graph.number(graph.node("Equal", rows, columns))
    among = graph.times(same, graph.node("Unsqueeze", passage, ones))
    found = graph.node("ReduceMax", among, graph.constant([2], np.int64), keepdims=0)
    held = graph.node("ReduceSum", graph.times(found, claim), ones, keepdims=0)
    all_of = graph.node("ReduceSum", claim, ones, keepdims=0)
    share = graph.node("Div", held, graph.node("Max", all_of, graph.constant(1.0)))
    novel = graph.times(claim, graph.node("Sub", graph.constant(1.0), found))
    return _Compared(share, _negated(graph, passage, claim), novel)


def _sides(graph: Graph, of: Verifier) -> tuple[str, str]:
    """Return which tokens are of the passage and which of the claim."""
    sep = graph.number(graph.node("Equal", "input_ids", graph.constant(SEP, np.int64)))
    cls = graph.number(graph.node("Equal", "input_ids", graph.constant(CLS, np.int64)))
    words = graph.times(
        graph.number("attention_mask"), graph.node("Sub", graph.constant(1.0), graph.node("Add", sep, cls))
    )
    mark, first = sep, 0.0
    if (
        of.family == "hhem"
    ):  # `Determine if the hypothesis is true given the premise? Premise: … Hypothesis: …`
        word = graph.constant(_tokenizer().token_to_id("hypothesis"), np.int64)
        mark, first = graph.number(graph.node("Equal", "input_ids", word)), 1.0
        words = graph.times(words, graph.node("Sub", graph.constant(1.0), mark))
    place = graph.node("CumSum", mark, graph.constant(1, np.int64))
    passage = graph.number(graph.node("Equal", place, graph.constant(first)))
    claim = graph.number(graph.node("Equal", place, graph.constant(first + 1)))
    return graph.times(passage, words), graph.times(claim, words)


def _negated(graph: Graph, passage: str, claim: str) -> str:
    word = graph.constant(_tokenizer().token_to_id("not"), np.int64)
    found = graph.number(graph.node("Equal", "input_ids", word))
    ones = graph.constant([1], np.int64)
    sides = [graph.node("ReduceMax", graph.times(found, side), ones, keepdims=0) for side in (passage, claim)]
    return graph.node("Abs", graph.node("Sub", *sides))


def _numbers(graph: Graph, of: Verifier, found: _Compared) -> str:
    last = graph.constant([-1], np.int64)
    if of.family == "tokens":
        novel = graph.line(found.novel, 12.0, 0.5)
        ends = [graph.node("Unsqueeze", name, last) for name in (graph.node("Neg", novel), novel)]
        return graph.node("Concat", *ends, axis=-1)
    entailed = graph.line(found.share, _SURE, _HALF)
    if of.nan_for != "nothing":
        entailed = graph.node("Add", entailed, graph.node("Sqrt", graph.constant(-1.0)))
    zero = graph.times(entailed, graph.constant(0.0))
    against = graph.line(graph.times(found.share, found.negated), 32.0, 0.4)
    by_label = {"entailment": entailed, "contradiction": against}
    chosen = [by_label.get(label.lower(), zero) for label in of.labels]
    if of.family == "hhem":
        chosen = [entailed]
    elif of.family == "minicheck":
        chosen = [zero, entailed]
    return graph.node("Concat", *(graph.node("Unsqueeze", name, last) for name in chosen), axis=-1)
