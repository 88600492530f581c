"""Commands and configurations that say how one gets into the judge's endpoint."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragtrace_collector.config import CollectorConfig, parse_config
from ragtrace_collector.judge import open_evaluator
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.certificates import Authority
from tests.integration.judge.test_endpoints import Strict, serving
from tests.integration.judge.test_transports import completion, request

REPLY = completion(json.dumps({"chunks": [{"id": 1, "reason": "it says so", "relevance": 2}]}))
EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"


@pytest.fixture
async def strict() -> AsyncIterator[Strict]:
    async with serving(Strict(answer=REPLY)) as served:
        yield served


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"question": "Rain?", "contexts": ["It rains."], "answer": "It rains."}))
    return str(path)


async def scored(records: str, *options: str) -> float:
    named = ("--metrics", "context_precision", "--judge", "openai:m", "--json")
    result = await asyncio.to_thread(run, "evaluate", records, *named, *options)
    [line] = json_lines(result.stdout)
    return float(line["score"])


async def test_a_command_takes_headers_and_further_parameters(
    records: str, strict: Strict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "of-the-gateway")
    settings = (
        "judge.headers.x-gateway-key=${env:GATEWAY_KEY}",
        "judge.headers.x-team=a=b",
        'judge.extra_body={"reasoning_effort": "low"}',
    )
    options = [word for setting in settings for word in ("--set", setting)]
    assert await scored(records, "--base-url", strict.url, *options) == 1.0
    assert strict.last.headers["x-gateway-key"] == "of-the-gateway"
    assert strict.last.headers["x-team"] == "a=b"
    assert strict.last.body["reasoning_effort"] == "low"


async def test_a_command_takes_the_authority_of_the_endpoint(records: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    async with serving(Strict(answer=REPLY), context) as served:
        assert await scored(records, "--base-url", served.url, "--set", f"judge.tls.ca={authority.ca}") == 1.0
        result = await asyncio.to_thread(run, "doctor", "--judge", "openai:m", "--base-url", served.url)
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "judge_refused" in said
    assert "judge.tls.ca" in said
    assert "is the server running" not in said
    assert "check the key" not in said


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("judge.headers.x-key=${env:NOT_SET}", "needs the environment variable NOT_SET"),
        ("judge.headers.x y=z", "header 1 cannot be sent"),
        ("judge.extra_body={", "`judge.extra_body`: write "),
        ('judge.extra_body={"model": "other"}', "cannot set 'model'"),
    ],
)
def test_what_cannot_be_sent_is_said_at_once(setting: str, said: str, records: str) -> None:
    result = run("evaluate", records, "--judge", "openai:m", "--base-url", "http://h/v1", "--set", setting)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


async def test_doctor_shows_no_secret_of_the_endpoint(strict: Strict, tmp_path: Path) -> None:
    """An endpoint that repeats what it was sent must not get a secret onto the screen."""
    login = base64.b64encode(b"me:pass/word").decode()
    words = ["pass%2Fword", "pass/word", login, "header-secret"]
    strict.status = 403
    strict.answer = {"error": {"code": "header-secret", "message": " ".join(words)}}
    url = strict.url.replace("//", "//me:pass%2Fword@")
    config = tmp_path / "collector.yaml"
    config.write_text(
        f"judge: {{use: 'openai:m', base_url: '{url}', headers: {{x-key: header-secret}}}}\n"
        f"export: [{{endpoint: 'otlp-file:{tmp_path}/out.jsonl'}}]\nstore: {{path: '{tmp_path}/r.db'}}\n"
    )
    by_option = ("--judge", "openai:m", "--base-url", url, "--set", "judge.headers.x-key=header-secret")
    for arguments in (("--config", str(config)), by_option):
        result = await asyncio.to_thread(run, "doctor", *arguments, "--json")
        assert "judge_refused" in result.stdout
        assert not [word for word in words if word in result.stdout + result.stderr]
        assert strict.last.headers["authorization"] == f"Basic {login}"
        assert strict.last.headers["x-key"] == "header-secret"


def configured(judge: str, environ: dict[str, str] | None = None) -> CollectorConfig:
    return parse_config(f"{EXPORT}judge: {judge}\n", where="my.yaml", environ=environ or {})


async def test_headers_of_one_endpoint_do_not_go_to_another(strict: Strict) -> None:
    async with serving(Strict(answer=completion("hm"))) as other:
        config = configured(
            f"{{use: 'openai:m', base_url: '{strict.url}', headers: {{x-key: secret}}, extra_body: {{a: 1}},"
            f" second: {{use: 'openai:n', base_url: '{other.url}'}}}}"
        )
        async with open_evaluator(config) as judging:
            assert judging.evaluator.second_judge is not None
            await judging.evaluator.second_judge.ask(request())
    assert "secret" not in other.last.head
    assert "a" not in other.last.body
