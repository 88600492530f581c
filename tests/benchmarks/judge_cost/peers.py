"""Runs ragas or deepeval against the stub, in an interpreter that has them; prints one line of JSON.

It imports nothing of ragtrace. ``python peers.py ragas|deepeval URL RECORDS CONCURRENCY``.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Awaitable, Callable

sys.path.insert(0, os.path.dirname(__file__))
import subject

Judge = Callable[[], Awaitable[None]]


def ragas(url: str) -> Judge:
    from openai import AsyncOpenAI
    from ragas.embeddings import OpenAIEmbeddings
    from ragas.llms import llm_factory
    from ragas.metrics.collections import (
        AnswerRelevancy,
        ContextPrecision,
        ContextRecall,
        ContextRelevance,
        Faithfulness,
    )

    client = AsyncOpenAI(base_url=url, api_key="none")
    llm = llm_factory("gpt-4o-mini", client=client)
    faithfulness, precision, recall = Faithfulness(llm=llm), ContextPrecision(llm=llm), ContextRecall(llm=llm)
    relevance = ContextRelevance(llm=llm)
    relevancy = AnswerRelevancy(llm=llm, embeddings=OpenAIEmbeddings(client=client))
    asked = {"user_input": subject.QUESTION}
    chunks = {"retrieved_contexts": list(subject.CHUNKS)}

    async def judge() -> None:
        await asyncio.gather(
            faithfulness.ascore(**asked, **chunks, response=subject.ANSWER),
            relevancy.ascore(**asked, response=subject.ANSWER),
            precision.ascore(**asked, **chunks, reference=subject.REFERENCE),
            recall.ascore(**asked, **chunks, reference=subject.REFERENCE),
            relevance.ascore(**asked, **chunks),
        )

    return judge


def deepeval(url: str) -> Judge:
    os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"
    from deepeval import metrics
    from deepeval.models import OpenAIModel
    from deepeval.test_case import LLMTestCase

    model = OpenAIModel(model="gpt-4o-mini", api_key="none", base_url=url)
    kinds = (
        metrics.FaithfulnessMetric,
        metrics.AnswerRelevancyMetric,
        metrics.ContextualPrecisionMetric,
        metrics.ContextualRecallMetric,
        metrics.ContextualRelevancyMetric,
        metrics.HallucinationMetric,
    )

    async def judge() -> None:
        case = LLMTestCase(
            input=subject.QUESTION,
            actual_output=subject.ANSWER,
            expected_output=subject.REFERENCE,
            retrieval_context=list(subject.CHUNKS),
            context=list(subject.CHUNKS),
        )
        measured = (kind(model=model).a_measure(case, _show_indicator=False) for kind in kinds)
        await asyncio.gather(*measured)

    return judge


async def measure(judge: Judge, records: int, concurrency: int) -> dict[str, float]:
    """Judge one record alone, then many at once; return seconds of both and CPU seconds a record."""
    await judge()  # what is done once, such as imports, is not counted
    started = time.perf_counter()
    await judge()
    alone_s = time.perf_counter() - started
    slots = asyncio.Semaphore(concurrency)

    async def one() -> None:
        async with slots:
            await judge()

    started, cpu = time.perf_counter(), cpu_s()
    await asyncio.gather(*(one() for _ in range(records)))
    return {
        "alone_s": alone_s,
        "records_per_s": records / (time.perf_counter() - started),
        "cpu_ms": 1000 * (cpu_s() - cpu) / records,
    }


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    name, url, records, concurrency = sys.argv[1:5]
    judge = {"ragas": ragas, "deepeval": deepeval}[name](url)
    print(json.dumps(asyncio.run(measure(judge, int(records), int(concurrency)))))
