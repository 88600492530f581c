"""The page about security: its snippets are taken by the collector, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

from ragtrace_collector.config import parse_config
from ragtrace_collector.config.sections import RuleConfig, SampleConfig, SampleLimitConfig
from ragtrace_collector.service.pipeline import sampler_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
SAMPLING = (ROOT / "docs" / "sampling.md").read_text("utf-8")
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
EXPORT = "\nexport: [{endpoint: 'http://localhost:4317'}]\n"
ENVIRON = {"RAGTRACE_STORE_KEY": "A" * 43 + "=", "TEMPO_TOKEN": "t"}


def test_a_snippet_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "judge").write_text("key")
    (tmp_path / "judge").chmod(0o600)
    for snippet in SNIPPETS:
        text = snippet.replace("/run/secrets/judge", "judge") + ("" if "export:" in snippet else EXPORT)
        parse_config(text, where="docs/security.md", environ=ENVIRON, folder=tmp_path)


def test_the_page_about_sampling_has_configurations_and_every_key() -> None:
    for example in re.findall(r"^```yaml\n(sample:.*?)^```$", SAMPLING, re.MULTILINE | re.DOTALL):
        config = parse_config(example + EXPORT, where="docs/sampling.md")
        assert sampler_of(config.sample).plan.ratio == config.sample.ratio < 1
    for section in (SampleConfig, RuleConfig, SampleLimitConfig):
        assert {key for key in section.model_fields if not re.search(rf"\b{key}\b", SAMPLING)} == set()


def test_the_tests_that_it_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    files = (ROOT / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))}
    assert len(named) > 15
    assert named - there == set()


ATTACKS = (
    "SSRF", "open redirect", "decompression bomb", "confused deputy", "prompt injection", "slowloris",
    "algorithmic complexity attack", "resource exhaustion", "symlink attack", "DNS rebinding",
    "terminal escape injection", "Trojan Source",
)  # fmt: skip


def test_each_attack_has_a_row_in_the_words_of_the_field_with_a_test() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and "`test_" in row]
    assert [attack for attack in ATTACKS if not any(attack in row for row in rows)] == []
