"""Live traffic, back-fill and `evaluate` are one evaluator: for every setting, the same ids and carriers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragtrace import semconv
from ragtrace.metrics.judge_card import Calibration, CardSet, IntervalEstimate, JudgeCard
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.config import load_config
from ragtrace_collector.config.sections import (
    AttachConfig,
    ExtractConfig,
    JudgeConfig,
    MappingConfig,
    MetricConfig,
    SecondJudgeConfig,
)
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.certificates import Authority
from tests.integration.collector.running import carriers_in
from tests.integration.collector.stepping import stepped_collector
from tests.likely_judge import EMBEDDER, LIKELY
from tests.rag_spans import rag_trace
from tests.timeless import without_durations

pytestmark = pytest.mark.slow

SPANS = rag_trace(
    1,
    chunks=("Refunds take 14 days.", "Refunds are free. They go to the card that paid."),
    answer="Refunds take 14 days. Refunds take 30 days. Refunds are free.",
)
OWN = frozenset({semconv.EVAL_MODE, semconv.EVAL_RUN_ID, semconv.EVAL_STARTED_AT, semconv.EVAL_DURATION_MS})
"""What a carrier says about its run, and not about the answer."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value of a setting that is not its default, and whether it makes another evaluator."""

    value: Any
    enters_version: bool = True
    beside: Mapping[str, Any] | None = None
    """Settings that it needs, by their paths."""


CASCADE = {"judge.screen": "lexical"}
JUDGE: Mapping[str, Setting] = {
    "use": Setting(value=f"{LIKELY}other"),
    "screen": Setting(value="lexical"),
    "band": Setting(value=[0.2, 0.95], beside=CASCADE),
    "base_url": Setting(value="http://localhost:1/v1", enters_version=False),
    "api_key_env": Setting(value="ANOTHER_KEY", enters_version=False),
    "api_key": Setting(value="a-key", enters_version=False),
    "tls": Setting(value={"ca": "{folder}/ca.crt"}, enters_version=False),
    "headers": Setting(value={"x-team": "search"}, enters_version=False),
    "extra_body": Setting(value={"seed": 7}),
    "timeout": Setting(value="30s", enters_version=False),
    "max_concurrency": Setting(value=2, enters_version=False),
    "second": Setting(value=f"{LIKELY}second"),
    "embedder": Setting(value=f"{EMBEDDER}other"),
    "batch_size": Setting(value=1),
    "verify": Setting(value="logprobs"),
    "calibration": Setting(value="{folder}/calibration.json"),
    "card": Setting(value="{folder}/card.json", enters_version=False),
    "require_card": Setting(value=True, enters_version=False, beside={"judge.card": "{folder}/card.json"}),
    "second_look": Setting(value=True),
    "sentinel_rate": Setting(value=0.5),
    "cache": Setting(value="{folder}/cache.db", enters_version=False),
    "prices": Setting(value="{folder}/other_prices.toml", enters_version=False),
}
SECOND: Mapping[str, Setting] = {
    "use": Setting(value=f"{LIKELY}other"),
    "base_url": Setting(value="http://localhost:2/v1", enters_version=False),
    "api_key_env": Setting(value="ANOTHER_KEY", enters_version=False),
}
METRIC: Mapping[str, Setting] = {
    "name": Setting(value="hallucination"),
    "profile": Setting(value="ragas"),
    "peer_prompts": Setting(value=True, beside={"evaluate.metrics.0.profile": "ragas"}),
    "threshold": Setting(value=0.9),
    "pass_when": Setting(value="contradicted == 0"),
    "prompts": Setting(value={"verify": "{folder}/verify.md"}),
    "options": Setting(value={"judge_truncated": True}),
    "criterion": Setting(
        value="The answer names a number of days.", beside={"evaluate.metrics.0.name": "names_days"}
    ),
}
ATTACH: Mapping[str, Setting] = {
    "mode": Setting(value="append", enters_version=False),
    "hold_timeout": Setting(value="31s", enters_version=False),
    "carrier_time": Setting(value="now", enters_version=False),
    "content": Setting(value=False, enters_version=False),
}
EXTRACT: Mapping[str, Setting] = {
    "context": Setting(value="spans", enters_version=False),
    "earlier_turns": Setting(value=5, enters_version=False),
}
MAPPING: Mapping[str, Setting] = {
    "question": Setting(value=["my.question"], enters_version=False),
    "answer": Setting(value=["my.answer"], enters_version=False),
    "context": Setting(value=["my.context"], enters_version=False),
    "reference": Setting(value=["my.reference"], enters_version=False),
    "session": Setting(value=["my.session"], enters_version=False),
    "tools": Setting(value="lookup", enters_version=False),
}
SECTIONS: Mapping[str, tuple[type, Mapping[str, Setting]]] = {
    "judge": (JudgeConfig, JUDGE),
    "judge.second": (SecondJudgeConfig, SECOND),
    "evaluate.metrics.0": (MetricConfig, METRIC),
    "attach": (AttachConfig, ATTACH),
    "extract": (ExtractConfig, {**EXTRACT, "mapping": Setting(value={}, enters_version=False)}),
    "extract.mapping": (MappingConfig, MAPPING),
}
SETTINGS = {
    f"{path}.{name}": setting
    for path, (_, settings) in SECTIONS.items()
    for name, setting in settings.items()
} | {"ui.public_url": Setting(value="https://rag.example.com/pages", enters_version=False)}


def test_every_setting_of_an_evaluator_is_here() -> None:
    for path, (section, settings) in SECTIONS.items():
        assert set(section.model_fields) == set(settings), path  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", SETTINGS)
def test_live_and_back_filled_carriers_are_the_same(path: str, tmp_path: Path) -> None:
    setting = SETTINGS[path]
    plain = Place(tmp_path / "plain")
    if path.startswith("judge.second."):
        plain.set("judge.second", {"use": f"{LIKELY}second"})
    changed = plain.copied(tmp_path / "changed")
    for other, value in (setting.beside or {}).items():
        changed.set(other, value)
    changed.set(path, setting.value)
    live, stored = changed.live(), changed.backfilled()
    assert live.span_id == stored.span_id
    assert told(live) == told(stored)
    assert (live.span_id != plain.live().span_id) == setting.enters_version


def test_objects_of_openinference_are_the_same_too(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    place.set("export.0.openinference", True)
    live = place.live()
    stored = place.backfilled("--config", str(place.config), "--openinference")
    assert f"{semconv.OI_EVALUATIONS}.0.evaluation.name" in live.attributes
    assert told(live) == told(stored)
    place.set("export.0.openinference", "auto")
    assert place.live().span_id == live.span_id


FLAGS: Mapping[str, tuple[str, Any]] = {
    "--calibration": ("judge.calibration", "{folder}/calibration.json"),
    "--metrics": ("evaluate.metrics.0.name", "hallucination"),
    "--threshold": ("evaluate.metrics.0.threshold", 0.9),
    "--pass-when": ("evaluate.metrics.0.pass_when", "contradicted == 0"),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_an_option_is_the_setting_of_the_configuration(flag: str, tmp_path: Path) -> None:
    path, value = FLAGS[flag]
    place = Place(tmp_path / "place")
    place.set(path, value)
    place.set("evaluate.metrics", place.settings["evaluate"]["metrics"][:1])
    embedder = ("--set", f"judge.embedder={EMBEDDER}base")
    written = (flag, str(place.filled(value)))
    by_options = place.backfilled("--judge", f"{LIKELY}base", *embedder, *written)
    assert by_options.span_id == place.backfilled(out="configured.jsonl").span_id


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["judge.timout=5m"], "unknown key `judge.timout`: did you mean `timeout`?"),
        (["judge.timeout=5"], "`judge.timeout`: write a duration with its unit"),
        (["jugde.timeout=5m"], "unknown key `jugde`: did you mean `judge`?"),
        (["judge"], "write KEY=VALUE, such as judge.timeout=5m"),
        (["judge..use=x"], "`judge..use` is no key"),
        (["judge.timeout=5m", "judge.timeout.seconds=5"], "`seconds` is below a value"),
        (["evaluate.metrics.recall.threshold=1"], "there is no `recall`, but `faithfulness`"),
        (["receive.grpc=null"], "this command reads judge, evaluate, extract, ui, not receive"),
    ],
)
def test_what_cannot_be_set_is_told(changes: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"question": "?", "contexts": ["a"], "answer": "a"}))
    options = [word for change in changes for word in ("--set", change)]
    result = run("evaluate", str(tmp_path / "r.jsonl"), "--judge", "scripted", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_evaluate_takes_the_evaluator_of_a_collector(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    place.set("judge.second_look", True)
    place.set("judge.batch_size", 1)
    place.set("evaluate.metrics", ["faithfulness"])
    record = {"question": "?", "contexts": ["Refunds take 14 days."], "answer": "Refunds take 14 days."}
    (place.folder / "records.jsonl").write_text(json.dumps(record))
    configured = ("--config", str(place.config))
    result = run("evaluate", str(place.folder / "records.jsonl"), *configured, "--json")
    [line] = json_lines(result.stdout)
    told_live = {event.attributes.get(semconv.EVALUATOR_VERSION) for event in place.live().events}
    assert line["evaluator_version"] in told_live
    assert line["cost_usd"] > 0


def test_what_holds_for_live_traffic_only_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    place.set("attach.mode", "hold")
    place.set("export.0.forward", True)
    source = ("--from", f"otlp-file:{place.traces}", "--dry-run")
    assert (
        "not used here: attach.mode: hold" in run("backfill", *source, "--config", str(place.config)).stderr
    )


@pytest.mark.parametrize("command", ["backfill", "evaluate"])
def test_an_option_that_the_configuration_would_override_is_refused(command: str, tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    source = ("--from", f"otlp-file:{place.traces}", "--dry-run")
    given = source if command == "backfill" else (str(place.traces),)
    result = run(command, *given, "--config", str(place.config), "--judge", "lexical", "--threshold", "0.5")
    assert result.exit_code == 2
    assert "leave out" in result.stderr
    assert "--judge" in result.stderr
    assert "--threshold" in result.stderr


class Place:
    """A folder with a configuration, stored traces, and what came of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        Authority(folder)
        (folder / "prices.toml").write_text(_prices(1))
        (folder / "other_prices.toml").write_text(_prices(2))
        built_in = files("ragtrace.metrics").joinpath("prompts/verify.v4.md").read_text("utf-8")
        (folder / "verify.md").write_text(built_in.replace("version: 4", "version: mine"))
        calibration = {"provider": "likely", "model": "base", "form": "logprobs", "threshold": 0.4}
        measured = {"files": ["x"], "answers": 1, "claims": 1, "balanced_accuracy": 0.9}
        found = CardSet(
            name="mine",
            digest="ab" * 8,
            auc=IntervalEstimate(value=0.8),
            floor_auc=IntervalEstimate(value=0.7),
        )
        card = JudgeCard(provider="likely", model="base", date="2026-01-01", sets=[found])
        card.write(folder / "card.json")
        Calibration.model_validate({**calibration, "measured_on": measured}).write(
            folder / "calibration.json"
        )
        self.traces.write_text(f"{encode_json(SPANS)}\n")
        self.settings: dict[str, Any] = {
            "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
            "judge": {"use": f"{LIKELY}base", "embedder": f"{EMBEDDER}base", "prices": "prices.toml"},
            "evaluate": {"metrics": [{"name": "faithfulness"}, {"name": "question_similarity"}]},
            "export": [{"endpoint": f"otlp-file:{folder / 'live.jsonl'}"}],
            "store": {"path": str(folder / "store.db")},
        }

    @property
    def traces(self) -> Path:
        return self.folder / "traces.jsonl"

    @property
    def config(self) -> Path:
        path = self.folder / "collector.yaml"
        path.write_text(yaml.safe_dump(self.settings))
        return path

    def copied(self, folder: Path) -> Place:
        other = Place(folder)
        for path, value in _leaves(self.settings["judge"], "judge"):
            other.set(path, value)
        return other

    def set(self, path: str, value: Any) -> None:
        """Set what a dotted path names."""
        *parents, last = path.split(".")
        at: Any = self.settings
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        at[last] = self.filled(value)

    def filled(self, value: Any) -> Any:
        """Put the folder into paths."""
        return json.loads(json.dumps(value).replace("{folder}", str(self.folder)))

    def live(self) -> Span:
        """Send the spans to a collector, and return the carrier."""
        return asyncio.run(self._live())

    async def _live(self) -> Span:
        async with stepped_collector(load_config(self.config, environ={})) as stepped:
            await stepped.send(*SPANS)
            await stepped.pass_time(120)
            [carrier] = stepped.carriers()
        return carrier

    def backfilled(self, *options: str, out: str = "stored.jsonl") -> Span:
        """Judge the stored spans by the configuration, or by options, and return the carrier."""
        (self.folder / "cache.db").unlink(missing_ok=True)  # replies of the cache have no cost
        evaluator = options or ("--config", str(self.config))
        where = ("--from", f"otlp-file:{self.traces}", "--to", f"otlp-file:{self.folder / out}", "--yes")
        result = run("backfill", *where, "--progress", str(self.folder / f"{out}.db"), *evaluator)
        assert result.exit_code == 0, result.stderr
        [carrier] = carriers_in(self.folder / out)
        return carrier


def told(carrier: Span) -> Span:
    """Return what a carrier says of an answer, without its run and its times."""
    attributes = {key: value for key, value in carrier.attributes.items() if key not in OWN}
    events = tuple(replace(event, time_ns=0) for event in without_durations(carrier).events)
    return replace(carrier, attributes=attributes, events=events, start_ns=0, end_ns=0)


def _prices(input_price: int) -> str:
    models = "\n".join(
        f"{name} = {{ input = {input_price}, output = 10 }}" for name in ("base", "other", "second")
    )
    return f"[likely]\n{models}\n"


def _leaves(settings: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        yield f"{path}.{name}", value
