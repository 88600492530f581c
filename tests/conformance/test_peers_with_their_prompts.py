"""Each peer's metric with its own calls, against an endpoint that replies what the peer's model replied."""

from __future__ import annotations

import pytest

from ragtrace.compat.peer import PeerOptions
from ragtrace.compat.peers import peer_named
from ragtrace.compat.running import PeerPrompted
from ragtrace.evaluation import evaluate
from ragtrace.judge import open_embedder, open_judge
from ragtrace.model import MetricOutcome, RagRecord
from tests.conformance.peer_cases import PeerCase, read_cases
from tests.conformance.peer_endpoint import PeerEndpoint, serving


async def measured(
    endpoint: PeerEndpoint, record: RagRecord, metric: str, profile: str, options: PeerOptions | None = None
) -> MetricOutcome:
    judge = open_judge("openai:m", base_url=endpoint.url, environ={})
    embedder = open_embedder("openai:e", base_url=endpoint.url, environ={})
    prompted = PeerPrompted(peer_named(metric, profile), options=options)
    try:
        evaluation = await evaluate(record, metrics=[prompted], judge=judge, embedder=embedder)
    finally:
        await judge.aclose()
        await embedder.aclose()
    return evaluation.outcomes[0]


@pytest.mark.parametrize("case", read_cases(), ids=str)
async def test_recorded_replies_give_what_the_peer_reported(case: PeerCase) -> None:
    async with serving(PeerEndpoint(replies=case.replies, embeddings=case.embeddings)) as endpoint:
        outcome = await measured(endpoint, case.record, case.metric, case.profile)
    assert outcome.compat is not None
    assert outcome.compat.status == case.status
    assert outcome.compat.score == pytest.approx(case.expected["score"], abs=1e-9)
    assert len(endpoint.asked) == outcome.usage.calls == case.expected["n_calls"]
