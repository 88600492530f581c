"""Measure what the judge ``nli`` takes: ``python -m tests.benchmarks.verifiers qa.jsonl``.

The models are encoders of the usual sizes with random weights, made on the spot: what they say is nothing,
but it takes what a trained one takes. They have plain attention; DeBERTa's takes more. A word is a token
here, of which trained tokenizers make about 1.3. One thread, and the processor time of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from ragtrace.judge import open_judge
from ragtrace.labeled_data import read_labeled
from ragtrace.model import MetricFailure
from ragtrace.pipeline import evaluate
from tests.tiny_verifiers import Graph, Verifier

WINDOW: Final = 512
_HEAD: Final = 64
_VOCABULARY: Final = 30_000
ANSWERS: Final = 10


SIZES: Final = {
    "12 layers of 384, as xsmall": (12, 384),
    "6 layers of 768, as small": (6, 768),
    "12 layers of 768, as base": (12, 768),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="labeled answers, as `ragtrace calibrate` reads them")
    parser.add_argument("--answers", type=int, default=ANSWERS)
    options = parser.parse_args()
    for name, size in SIZES.items():
        for is_int8 in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                apart(write, size, is_int8, Path(folder))
                told = apart(measured, Path(folder), options.file, options.answers)
            print(f"{name}, {'int8' if is_int8 else 'float32'}: {told}", flush=True)


def apart(work: Callable[..., Any], *given: object) -> Any:
    """Call a function in a process of its own, whose memory is only this work's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def write(size: tuple[int, int], is_int8: bool, folder: Path) -> None:
    Verifier(window=WINDOW).write(folder)
    model = folder / "model.onnx"
    onnx.save(encoder(*size), model)
    if is_int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(model, folder / "int8.onnx", weight_type=QuantType.QInt8)
        (folder / "int8.onnx").rename(model)


def measured(folder: Path, file: str, answers: int) -> str:
    cpu_s, claims = asyncio.run(_judged(folder, file, answers))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size_mb = (folder / "model.onnx").stat().st_size / 1e6
    return (
        f"{size_mb:.0f} MB, {cpu_s / claims * 1e3:.0f} ms of CPU a claim,"
        f" {claims / cpu_s:.1f} claims a second, {memory_mb:.0f} MB of memory"
    )


async def _judged(folder: Path, file: str, answers: int) -> tuple[float, int]:
    judge = open_judge(f"nli:{folder}?threads=1")
    records = [answer.record for answer in read_labeled(file)][: answers + 1]
    await evaluate(records[0], judge=judge)  # loads the model
    start, claims = time.process_time(), 0
    for record in records[1:]:
        for outcome in (await evaluate(record, judge=judge)).outcomes:
            assert not isinstance(outcome, MetricFailure), outcome.message
            claims += len(outcome.verdicts)
    taken = time.process_time() - start
    await judge.aclose()
    return taken, claims


def encoder(layers: int, width: int) -> Any:
    """Build an encoder with random weights, which calls every claim supported."""
    graph, draw = Graph(), np.random.default_rng(0)

    def weights(*shape: int) -> str:
        return graph.constant(draw.normal(0, 0.02, shape))

    hidden = graph.node("Gather", weights(_VOCABULARY, width), "input_ids")
    ones = graph.constant([1], np.int64)
    mask = graph.node("Unsqueeze", graph.number("attention_mask"), graph.constant([1, 2], np.int64))
    mask = graph.line(mask, 1e4, 1.0)
    for _ in range(layers):
        hidden = _layer(graph, weights, hidden, mask, width)
    first = graph.node("Squeeze", graph.node("Gather", hidden, graph.constant([0], np.int64), axis=1), ones)
    scores = graph.node("MatMul", first, weights(width, 3))
    logits = graph.node("Add", scores, graph.constant([-9.0, 9.0, -9.0]))
    graph.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    made = helper.make_graph(graph.nodes, "encoder", inputs, [output], graph.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _layer(graph: Graph, weights: Any, hidden: str, mask: str, width: int) -> str:
    def heads(name: str) -> str:
        shape = graph.constant([0, 0, width // _HEAD, _HEAD], np.int64)
        found = graph.node("MatMul", name, weights(width, width))
        return graph.node("Transpose", graph.node("Reshape", found, shape), perm=[0, 2, 1, 3])

    def normal(name: str) -> str:
        scale, bias = graph.constant(np.ones(width)), graph.constant(np.zeros(width))
        return graph.node("LayerNormalization", name, scale, bias, axis=-1)

    queries, keys, values = heads(hidden), heads(hidden), heads(hidden)
    scores = graph.node("MatMul", queries, graph.node("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.node("Add", graph.times(scores, graph.constant(_HEAD**-0.5)), mask)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), values)
    joined = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", joined, graph.constant([0, 0, width], np.int64))
    hidden = normal(graph.node("Add", hidden, graph.node("MatMul", joined, weights(width, width))))
    inner = graph.node("Gelu", graph.node("MatMul", hidden, weights(width, 4 * width)))
    return normal(graph.node("Add", hidden, graph.node("MatMul", inner, weights(4 * width, width))))


if __name__ == "__main__":
    main()
