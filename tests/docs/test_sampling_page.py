"""The page about sampling: its examples are configurations, and say what the page says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragtrace_collector.config import parse_config
from ragtrace_collector.config.sections import FollowUpConfig, RuleConfig, SampleConfig, SampleLimitConfig
from ragtrace_collector.service.pipeline import sampler_of

PAGE = (Path(__file__).parents[2] / "docs/sampling.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(sample:.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[1].strip())
def test_an_example_is_a_configuration(example: str) -> None:
    config = parse_config(f"{example}\nexport: [{{endpoint: 'http://localhost:4317'}}]", where="docs")
    assert sampler_of(config.sample).plan.ratio == config.sample.ratio < 1


@pytest.mark.parametrize(
    "section",
    [SampleConfig, RuleConfig, SampleLimitConfig, FollowUpConfig],
)
def test_every_key_is_explained(section: type[SampleConfig]) -> None:
    assert {key for key in section.model_fields if not re.search(rf"\b{key}\b", PAGE)} == set()
