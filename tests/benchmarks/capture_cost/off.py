"""Measure whether an application notices helpers that are off: before ``instrument()``, or disabled.

    python -m tests.benchmarks.capture_cost.off [--rounds 300] [--calls 20]

The application posts the prompt to a server on loopback that answers at once with nothing: less than any
model call costs. It runs *alone*, *with helpers* around it that are off, and *alone* a second time, in short
turns of shuffled order in one process. The second ratio is the noise: two measurements of the same function.
"""

from __future__ import annotations

import argparse
import http.client
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import ragtrace
from tests.benchmarks.capture_cost.contender import contending
from tests.benchmarks.capture_cost.payload import CHUNKS, INPUT_TOKENS, MODEL, OUTPUT_TOKENS, PROMPT, QUESTION

PACKAGE = "tests.benchmarks.capture_cost"
WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    with contending("sink", [sys.executable, "-m", f"{PACKAGE}.sink"]) as sink:
        model = http.client.HTTPConnection("127.0.0.1", sink.heard()[0])
        functions: dict[str, Callable[[], object]] = {
            "alone": partial(answered, model),
            "with helpers": partial(helped, model),
            "alone again": partial(answered, model),
        }
        rounds = [_round(functions, options.calls) for _ in range(WARM_UP + options.rounds)][WARM_UP:]
    print("| | µs a call | times alone | half of the rounds lie between |")
    print("| --- | --- | --- | --- |")
    for name in functions:
        ratios = [each[name] / each["alone"] for each in rounds]
        low, middle, high = statistics.quantiles(ratios, n=4)
        spent = statistics.median(each[name] for each in rounds) / options.calls * 1e6
        print(f"| {name} | {spent:.1f} | {middle:.3f} | {low:.3f} to {high:.3f} |")


def answered(model: http.client.HTTPConnection) -> str:
    """Answer from the chunks, by a model that says nothing."""
    model.request("POST", "/v1/chat", PROMPT)
    return model.getresponse().read().decode()


def helped(model: http.client.HTTPConnection) -> str:
    """Do the same with a helper for the call, its retrieval and its generation."""
    with ragtrace.rag(question=QUESTION) as call:
        with ragtrace.retrieval(query=QUESTION, data_source="kb") as search:
            search.set_chunks(CHUNKS)
        with ragtrace.generation(model=MODEL, prompt=PROMPT) as chat:
            answer = answered(model)
            chat.set_answer(answer)
            chat.set_usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        call.set_answer(answer)
    return answer


def _round(functions: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    names = random.sample(list(functions), len(functions))
    return {name: _seconds(functions[name], calls) for name in names}


def _seconds(function: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
