"""The configuration: what is wrong is said with the file, the key and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace_collector.config import (
    CollectorConfig,
    ExportConfig,
    default_config_text,
    load_config,
    parse_config,
)

EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"


def test_the_commented_default_file_says_the_defaults_of_the_program() -> None:
    written = parse_config(default_config_text(), where="config.yaml", environ={})
    assert written == CollectorConfig(export=(ExportConfig(endpoint="http://localhost:4317"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample: {ration: 1}\n" + EXPORT, "unknown key `sample.ration`: did you mean `ratio`?"),
        ("assemble: {quiet_period: 5}\n" + EXPORT, "`assemble.quiet_period`: write a duration with its unit"),
        ("receive: {grpc: null, http: null}\n" + EXPORT, "nothing could come in"),
        (
            "receive: {kafka: {brokers: 'k:9092', topics: [a, b], dead_letter: b}}\n" + EXPORT,
            "`receive.kafka`: `dead_letter` of 'a' is one of `topics`",
        ),
        (
            "receive: {kafka: {brokers: 'k:9092', options: {enable.auto.commit: 'true'}}}\n" + EXPORT,
            "`receive.kafka.options`: 'enable.auto.commit' is set by the collector",
        ),
        (
            "receive: {kafka: {brokers: 'k:9092',"
            " options: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN}}}\n" + EXPORT,
            "`receive`: `kafka.options` would send the password readable to other machines",
        ),
        ("sample: {ratio: 1.5}\n" + EXPORT, "`sample.ratio`: write 1 or less"),
        ("sample: {rules: [{name: a}]}\n" + EXPORT, "`sample.rules[0]`: say which answers: service, status"),
        (
            "sample: {rules: [{name: ratio, service: a}]}\n" + EXPORT,
            "`sample.rules[0]`: 'ratio' is the name of a rule that is built in",
        ),
        (
            "sample: {rules: [{name: a, model: '/(/'}]}\n" + EXPORT,
            "`sample.rules[0].model`: '/(/' is no regular expression",
        ),
        ("export: [{endpoint: 'http://localhost:4327'}]", "this collector's own receiver: a loop"),
        (
            "export: [{endpoint: '${env:NOWHERE}'}]",
            "`export[0].endpoint` needs the environment variable NOWHERE",
        ),
        (
            "assemble: {deadline: 99999999999999d}\n" + EXPORT,
            "`assemble.deadline`: write a duration of at most",
        ),
        ("export: [{endpoint: a:1, headers: {'a b': c}}]", "`export[0].headers`: header 1 cannot be sent"),
        (
            "evaluate: {metrics: [{name: faithfulness}, {name: faithfulness, threshold: 1}]}\n" + EXPORT,
            "`evaluate.metrics`: 'faithfulness' is named twice",
        ),
        ("judge: {verify: text}\n" + EXPORT, "`judge.verify`: choose `auto`, `json` or `logprobs`"),
        ("sample: {ratio: 0.5, suspicion: {to: 0.5}}\n" + EXPORT, "is not above `ratio`"),
        ("attach: {mode: hold}\n" + EXPORT, "forward: true"),
        (
            "attach: {mode: hold, hold_timeout: 1s}\nexport: [{endpoint: a:1, forward: true}]",
            "hold_timeout",
        ),
        ("export: [{endpoint: 'phoenix:http://host:6006', forward: true}]", "accept evaluations only"),
        (
            f"store: {{encryption_keys: [{'A' * 43}=]}}\njudge: {{cache: judge.db}}\n" + EXPORT,
            "`judge.cache` keeps replies",
        ),
        ("a: &a [*a]", "nested too deep"),
        ("[]", "must hold keys such as `judge:`; it holds a list"),
        ("", "it holds nothing"),
        ("a: [", "not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, where="my.yaml", environ={})
    assert said in str(caught.value)
    assert str(caught.value).startswith("my.yaml: ")
    assert len(str(caught.value).splitlines()) == 1 or "not YAML" in said


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("sample: {ration: 1}\nlog_level: loud\n" + EXPORT, where="my.yaml", environ={})
    assert len(str(caught.value).splitlines()) == 2


def test_values_refer_to_the_environment() -> None:
    text = (
        "export: [{endpoint: '${env:BACKEND}', headers: {authorization: 'Bearer ${env:TOKEN:-none}'}}]\n"
        "sample: {ratio: '${env:RATIO:-0.25}'}\n"
    )
    config = parse_config(text, where="my.yaml", environ={"BACKEND": "http://tempo:4317", "TOKEN": "123"})
    assert config.export[0].endpoint == "http://tempo:4317"
    assert config.export[0].headers["authorization"].get_secret_value() == "Bearer 123"
    assert config.sample.ratio == 0.25


@pytest.mark.parametrize("secret", ["@a: b: c", "[1", "%x", "*y", "007", "1e5", "12345", "2026-01-01", "1_0"])
def test_a_secret_of_the_environment_is_taken_as_it_is(secret: str) -> None:
    text = "export: [{endpoint: a:1, headers: {key: '${env:KEY}'}}]"
    headers = parse_config(text, where="my.yaml", environ={"KEY": secret}).export[0].headers
    assert headers["key"].get_secret_value() == secret


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read"):
        load_config(tmp_path / "missing.yaml")


def test_metrics_second_judge_and_cache_may_be_written_as_one_text() -> None:
    text = "judge: {second: openai:b, cache: j.db}\nevaluate: {metrics: [faithfulness, rag_score]}\n"
    config = parse_config(text + EXPORT, where="my.yaml", environ={})
    assert [metric.name for metric in config.evaluate.metrics] == ["faithfulness", "rag_score"]
    assert config.judge.second is not None
    assert config.judge.second.use == "openai:b"
    assert config.judge.cache == Path("j.db")


def test_what_the_file_names_is_looked_for_beside_it(tmp_path: Path) -> None:
    prompts = '{verify: verify.md, extract: "Two\\nlines"}'
    metrics = f"[./metric.py:Politeness, {{name: faithfulness, prompts: {prompts}}}]"
    (tmp_path / "my.yaml").write_text(
        f"{EXPORT}judge: {{use: './judge.py:open_it', calibration: found.json, prices: prices.toml}}\n"
        f"evaluate: {{metrics: {metrics}}}\n"
    )
    config = load_config(tmp_path / "my.yaml", environ={})
    judge, (own, faithfulness) = config.judge, config.evaluate.metrics
    assert (judge.use, own.name) == (f"{tmp_path}/judge.py:open_it", f"{tmp_path}/metric.py:Politeness")
    assert (judge.calibration, judge.prices) == (tmp_path / "found.json", tmp_path / "prices.toml")
    assert faithfulness.prompts == {"verify": str(tmp_path / "verify.md"), "extract": "Two\nlines"}
    assert config.store.path is None
