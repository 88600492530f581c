"""What a collector says of an answer with one wrong claim, by the rule that its configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.traces.trace import Span
from ragtrace_collector.config import parse_config
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.rag_spans import rag_trace

ANSWER = "Refunds take 30 days. They are paid to your card."
SCRIPT = """
{"claims": {"Refunds take 30 days.": "contradicted", "They are paid to your card.": "supported"}}
"""
RULE = "material_contradicted == 0 and material_unsupported == 0 and coverage >= 0.5"


async def carrier_of(folder: Path, **faithfulness: Any) -> Span:
    """Send one answer with a wrong claim, and return what is said of it."""
    (folder / "judge.json").write_text(SCRIPT)
    config = config_of(
        folder,
        judge={"use": f"scripted:{folder / 'judge.json'}"},
        evaluate={"metrics": [{"name": "faithfulness", **faithfulness}]},
    )
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(1, answer=ANSWER)))
        (carrier,) = await until(lambda: carriers_in(folder / "out.jsonl"))
    return carrier


async def test_one_wrong_claim_fails_an_answer(tmp_path: Path) -> None:
    carrier = await carrier_of(tmp_path)
    attributes = carrier.attributes
    assert (carrier.name, attributes[semconv.PASS]) == ("evaluation fail", False)
    assert attributes[f"{semconv.SCORE_PREFIX}faithfulness"] == 0.5
    assert attributes[f"{semconv.PASS_WHEN_PREFIX}faithfulness"] == RULE
    assert f"{semconv.THRESHOLD_PREFIX}faithfulness" not in attributes
    assert carrier.events[0].attributes[semconv.PASS_WHEN] == RULE


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ({"pass_when": "score >= 0.5"}, "evaluation pass"),
        ({"threshold": 0.5}, "evaluation pass"),
        ({"pass_when": "contradicted == 0"}, "evaluation fail"),
        ({"pass_when": "contradicted <= 1 and unsupported <= 2"}, "evaluation pass"),
        ({"pass_when": "lower_bound >= 0.75"}, "evaluation fail"),
        ({"pass_when": "coverage >= 1"}, "evaluation pass"),
    ],
)
async def test_the_configuration_says_when_it_passes(
    tmp_path: Path, rule: dict[str, object], name: str
) -> None:
    assert (await carrier_of(tmp_path, **rule)).name == name


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("{name: faithfulness, threshold: 0.5, pass_when: score >= 0.7}", "both say when it passes"),
        ("{name: faithfulness, profile: ragas, pass_when: score >= 0.7}", "ragtrace's own profile"),
    ],
)
def test_two_rules_are_told_before_anything_runs(metric: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_config(f"evaluate: {{metrics: [{metric}]}}", where="test", environ={})


async def test_what_is_no_rule_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'mostly right' is not a condition such as"):
        await carrier_of(tmp_path, pass_when="mostly right")
