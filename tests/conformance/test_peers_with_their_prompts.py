"""Each peer's metric with its own calls, against an endpoint that replies what the peer's model replied."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from ragtrace.compat.tool import ToolOptions, ToolPrompted, tool_named
from ragtrace.judge import open_embedder, open_judge
from ragtrace.model import MetricFailure, MetricOutcome, RagRecord, SkipReason
from ragtrace.pipeline import evaluate
from ragtrace.ports import Embedder, Judge
from tests.conformance.peer_cases import PeerCase, read_cases
from tests.conformance.peer_endpoint import PeerEndpoint, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORD = RagRecord.of(
    question="Since when?", contexts=["Since 1889.", "It is tall."], answer="Since 1889.", reference="1889."
)
STATED = '{"statements": ["Since 1889."]}'
SUPPORTED = '{"statements": [{"statement": "Since 1889.", "reason": "r", "verdict": 1}]}'


@dataclass
class Peers:
    """The peers' metrics, and the endpoint that their models stand behind."""

    endpoint: PeerEndpoint
    judge: Judge
    embedder: Embedder
    options: ToolOptions = field(default_factory=ToolOptions)

    async def measure(
        self, metric: str, profile: str, *replies: Any, record: RagRecord = RECORD, **embeddings: Any
    ) -> MetricOutcome:
        self.endpoint.reply_with(replies, embeddings)
        prompted = ToolPrompted(tool_named(metric, profile), options=self.options)
        evaluation = await evaluate(record, metrics=[prompted], judge=self.judge, embedder=self.embedder)
        return evaluation.outcomes[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened() -> AsyncIterator[Peers]:
    async with serving(PeerEndpoint()) as endpoint:
        judge = open_judge("openai:m", base_url=endpoint.url, environ={}, max_retries=0)
        embedder = open_embedder("openai:e", base_url=endpoint.url, environ={}, max_retries=0)
        yield Peers(endpoint=endpoint, judge=judge, embedder=embedder)
        await judge.aclose()
        await embedder.aclose()


@pytest.fixture
def peers(opened: Peers) -> Peers:
    opened.options = ToolOptions()
    return opened


@pytest.mark.parametrize("case", read_cases(), ids=str)
async def test_recorded_replies_give_what_the_peer_reported(peers: Peers, case: PeerCase) -> None:
    outcome = await peers.measure(
        case.metric, case.profile, *case.replies, record=case.record, **case.embeddings
    )
    assert outcome.compat is not None
    assert outcome.compat.status == case.status
    assert outcome.compat.score == pytest.approx(case.expected["score"], abs=1e-9)
    assert len(peers.endpoint.asked) == outcome.usage.calls == case.expected["n_calls"]


async def test_what_the_peer_raises_is_a_failure_without_a_score(peers: Peers) -> None:
    outcome = await peers.measure("faithfulness", "ragas", "I cannot help with that.")
    assert isinstance(outcome, MetricFailure)
    assert outcome.error_type == "peer_error"
    assert outcome.usage.calls == 4


async def test_a_number_outside_0_to_1_is_kept_beside_an_absent_score(peers: Peers) -> None:
    useful = ['{"reason": "r", "verdict": 2}', '{"reason": "r", "verdict": 0}']
    outcome = await peers.measure("context_precision", "ragas", *useful)
    assert not isinstance(outcome, MetricFailure)
    assert (outcome.score, outcome.skip_reason) == (None, SkipReason.OUT_OF_RANGE)
    assert outcome.compat is not None
    assert outcome.compat.score == pytest.approx(1.9999999999)


async def test_nan_is_an_absent_score(peers: Peers) -> None:
    outcome = await peers.measure("faithfulness", "ragas", '{"statements": []}')
    assert not isinstance(outcome, MetricFailure)
    assert (outcome.score, outcome.skip_reason) == (None, SkipReason.TOOL_NAN)


async def test_ragas_asks_as_its_collections_do(peers: Peers) -> None:
    await peers.measure("faithfulness", "ragas", STATED, SUPPORTED)
    [first, second] = peers.endpoint.asked
    assert first["response_format"] == {"type": "json_object"}
    assert (first["temperature"], first["top_p"]) == (0.01, 0.1)
    assert 1024 in (first.get("max_tokens"), first.get("max_completion_tokens"))
    assert "Since 1889.\nIt is tall." in second["messages"][-1]["content"]


async def test_ragas_sends_back_what_was_wrong_about_a_reply(peers: Peers) -> None:
    outcome = await peers.measure("faithfulness", "ragas", "no", STATED, SUPPORTED)
    assert outcome.usage.calls == 3
    assert "Invalid JSON" in peers.endpoint.prompts[1]


@pytest.mark.parametrize("value", ["true", '"1"', "1.0", "null", "1.5"])
async def test_ragas_converts_no_value(peers: Peers, value: str) -> None:
    judged = f'{{"statements": [{{"statement": "s", "reason": "r", "verdict": {value}}}]}}'
    outcome = await peers.measure("faithfulness", "ragas", STATED, judged)
    assert isinstance(outcome, MetricFailure)
    assert outcome.usage.calls == 5


@pytest.mark.parametrize("value", ["true", '"1"', "1.0", "2", "-1"])
async def test_ragas_of_old_converts_values(peers: Peers, value: str) -> None:
    judged = f'Here [note]:\n```json\n{{"statements": [{{"statement": "s", "reason": "r", "verdict": {value}'
    outcome = await peers.measure("faithfulness", "ragas-legacy", STATED, judged)
    assert not isinstance(outcome, MetricFailure)
    assert outcome.score == 1.0


@pytest.mark.parametrize("profile", ["ragas", "ragas-legacy"])
async def test_a_reply_at_the_token_limit_is_not_asked_for_again(peers: Peers, profile: str) -> None:
    outcome = await peers.measure("faithfulness", profile, (STATED, "length"), SUPPORTED)
    assert isinstance(outcome, MetricFailure)
    assert outcome.usage.calls == 1


@pytest.mark.parametrize("repaired", [STATED, json.dumps({"text": STATED})])
async def test_ragas_of_old_has_a_reply_repaired_once(peers: Peers, repaired: str) -> None:
    outcome = await peers.measure("faithfulness", "ragas-legacy", "no", repaired, SUPPORTED)
    assert not isinstance(outcome, MetricFailure)
    assert (outcome.score, outcome.usage.calls) == (1.0, 3)


QUESTIONS = [
    '{"question": "like", "noncommittal": 0}',
    '{"question": "", "noncommittal": 0}',
    '{"question": "unlike", "noncommittal": 1}',
]
VECTORS = {"Since when?": [1.0, 0.0], "like": [1.0, 0.0], "unlike": [0.0, 1.0], "": [0.6, 0.8]}


@pytest.mark.parametrize(("profile", "score"), [("ragas", 0.5), ("ragas-legacy", 1.6 / 3)])
async def test_an_empty_question_is_dropped_by_ragas_and_embedded_by_ragas_of_old(
    peers: Peers, profile: str, score: float
) -> None:
    outcome = await peers.measure("answer_relevance", profile, *QUESTIONS, **VECTORS)
    assert not isinstance(outcome, MetricFailure)
    assert outcome.score == pytest.approx(score)
    assert outcome.usage.calls == 3


async def test_strictness_is_how_many_questions_are_made(peers: Peers) -> None:
    peers.options = ToolOptions(strictness=1)
    outcome = await peers.measure("answer_relevance", "ragas", *QUESTIONS, **VECTORS)
    assert outcome.usage.calls == 1


@pytest.mark.parametrize(
    ("profile", "replies", "status", "calls"),
    [
        ("ragas", ['{"rating": 3}'] * 4 + ['{"rating": 2}'], "ok", 6),
        ("ragas", ["no"], "nan", 40),
        ("ragas", ['{"rating": 2}', "no"], "ok", 21),
        ("ragas-legacy", ["1 out of 2", "0"], "ok", 2),
        ("ragas-legacy", [*["no"] * 5, "2"], "nan", 6),
        ("ragas-legacy", ["2", "no"], "ok", 6),
    ],
)
async def test_each_of_two_judges_is_asked_five_times(
    peers: Peers, profile: str, replies: list[str], status: str, calls: int
) -> None:
    outcome = await peers.measure("context_relevance", profile, *replies)
    assert outcome.compat is not None
    assert (outcome.compat.status, outcome.usage.calls) == (status, calls)


@pytest.mark.parametrize(("profile", "calls"), [("ragas", 2), ("ragas-legacy", 0)])
async def test_a_verbatim_answer_needs_no_judge_in_ragas_of_old(
    peers: Peers, profile: str, calls: int
) -> None:
    reply = '{"rating": 2}'
    outcome = await peers.measure("groundedness", profile, reply)
    assert not isinstance(outcome, MetricFailure)
    assert (outcome.score, outcome.usage.calls) == (1.0, calls)


@pytest.mark.parametrize(
    ("metric", "profile", "status"),
    [
        ("faithfulness", "ragas", "error"),
        ("context_relevance", "ragas", "nan"),
        ("faithfulness", "deepeval-4", "error"),
        ("faithfulness", "promptfoo", "grader_error"),
    ],
)
async def test_a_silent_endpoint_is_a_failure_whatever_the_peer_makes_of_it(
    peers: Peers, metric: str, profile: str, status: str
) -> None:
    outcome = await peers.measure(metric, profile, 503)
    assert isinstance(outcome, MetricFailure)
    assert (outcome.error_type, outcome.retryable) == ("judge_unavailable", True)
    assert outcome.compat is not None
    assert outcome.compat.status == status


async def test_context_utilization_looks_at_the_answer_instead_of_the_reference(peers: Peers) -> None:
    record = RagRecord.of(question="q", contexts=["c"], answer="ANSWER", reference="REFERENCE")
    await peers.measure("context_utilization", "ragas", '{"reason": "r", "verdict": 1}', record=record)
    [prompt] = peers.endpoint.prompts
    assert "ANSWER" in prompt
    assert "REFERENCE" not in prompt
