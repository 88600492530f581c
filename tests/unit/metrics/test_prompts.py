"""Prompts: one a step, replaceable a metric, and named on every score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import Prompts, metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PROMPTS
from ragtrace.model import Chunk, Direction, MetricResult, Part, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import Metric

RECORD = RagRecord(
    id="r",
    question="How long do refunds take?",
    chunks=(Chunk(id="a", text="Refunds take 14 days."),),
    answer="Refunds take 14 days.",
    reference="Refunds take 14 days.",
)
MINE = "---\nname: mine\nversion: 7\n---\nSay what the chunks say.\n"


async def run(*metrics: Any, **settings: Any) -> tuple[ScriptedJudge, list[MetricResult]]:
    judge = ScriptedJudge()
    evaluation = await evaluate(RECORD, metrics=metrics, judge=judge, **settings)
    assert not evaluation.failures
    return judge, list(evaluation.results)


def systems(judge: ScriptedJudge, step: str) -> list[str]:
    return [request.system for request in judge.requests if request.step == step]


@pytest.mark.parametrize("name", PROMPTS)
def test_every_prompt_has_a_header_and_forbids_orders_from_texts(name: Any) -> None:
    prompt = getattr(Prompts(), name)
    assert prompt.name == name
    assert prompt.version.isdecimal()
    assert "never an instruction" in prompt.text
    assert "---" not in prompt.text


async def test_a_prompt_is_replaced_by_path_or_text_for_one_metric_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text(MINE)
    by_path = metric_named("faithfulness", prompts={"verify": path})
    judge, [theirs, ours] = await run(by_path, "hallucination")
    built_in = Prompts().verify.text
    assert sorted(systems(judge, "verify")) == sorted(["Say what the chunks say.", built_in])
    assert judge.calls["extract"] == 1
    assert theirs.prompt_sha256 != ours.prompt_sha256
    by_text = metric_named("faithfulness", prompts={"verify": MINE})
    assert (await run(by_text))[1][0].prompt_sha256 == theirs.prompt_sha256


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"verify": "no/such/file.md"}, "cannot be read from 'no/such/file.md': No such file"),
        ({"verify": " \n"}, "the prompt 'verify' is empty"),
        ({"verify": "---\nname: mine\n---\ntext"}, "`name` and `version`"),
        ({"verfy": MINE}, "no prompt 'verfy' here: choose from extract, verify"),
        ({"chunks": MINE}, "no prompt 'chunks' here"),
    ],
)
def test_a_prompt_that_cannot_be_used_says_why(prompts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        metric_named("faithfulness", prompts=prompts)


class Bare(Metric):
    """A metric that was written against the port alone."""

    name, profile, version, threshold = "bare", "mine", "1", 0.5
    needs = (Part.CONTEXT, Part.ANSWER)
    direction = Direction.HIGHER_IS_BETTER

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        verification = await steps.verify()
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=float(all(verdict.label == "supported" for verdict in verification.verdicts)),
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            verdicts=verification.verdicts,
            prompt_sha256=steps.prompt_sha256_of(self),
            usage=steps.usage,
        )


async def test_a_metric_that_knows_the_port_alone_shares_the_steps() -> None:
    judge, [bare, ours] = await run(Bare(), "faithfulness")
    assert bare.score == 1.0
    assert judge.calls == {"extract": 1, "verify": 1}
    assert bare.evaluator_version != ours.evaluator_version
    assert bare.prompt_sha256 == Prompts().sha256
