"""What servers send beside the protocol, at the command: it ends as verdicts or as a named failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.replies import REPLIES
from tests.attack.hostile_judge import HostileJudge, Rule, Said, completion, hostile_judge
from tests.integration.cli.program import run
from tests.planted import answered

ROW = {
    "question": "How long do refunds take?",
    "contexts": ["Refunds take 14 days.", "The shop sells lamps. " * 1_500],
    "answer": "Refunds take 14 days. Refunds take 30 days.",
}
VERDICTS = ["supported", "contradicted"]


def judged(folder: Path, rule: Rule, *options: str) -> tuple[dict[str, Any], HostileJudge]:
    file = folder / "record.json"
    file.write_text(json.dumps(ROW), "utf-8")
    with hostile_judge(rule) as judge:
        said = run(
            "evaluate", str(file), "--judge", "openai:m", "--base-url", judge.base_url, "--json", *options
        )
    return json.loads(next(line for line in said.output.splitlines() if line.startswith("{"))), judge


def value(request: Mapping[str, Any]) -> Any:
    step = "verify" if '"verdicts"' in json.dumps(request.get("response_format")) else "extract"
    return answered(REPLIES[step], request)


def message(request: Mapping[str, Any], **fields: Any) -> Said:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": None, **fields},
    }
    return Said(body=json.dumps({"choices": [choice]}).encode())


def without_system_role(request: Mapping[str, Any]) -> Said:
    if any(said["role"] == "system" for said in request["messages"]):
        return Said(status=400, body=b'{"error": {"message": "System role not supported"}}')
    return Said(body=completion(request))


WRITTEN: Mapping[str, Callable[[Mapping[str, Any]], Said]] = {
    "reasoning_content": lambda request: message(request, reasoning_content=json.dumps(value(request))),
    "no system role": without_system_role,
    "wrapped": lambda request: Said(body=completion(request, text=json.dumps({"response": value(request)}))),
    "listed": lambda request: Said(
        body=completion(request, text=json.dumps(next(iter(value(request).values()))))
    ),
    "a JSON string": lambda request: Said(
        body=completion(request, text=json.dumps(json.dumps(value(request))))
    ),
    "Python's": lambda request: Said(body=completion(request, text=repr(value(request)))),
    "capitals": lambda request: Said(
        body=completion(request, text=json.dumps(value(request)).replace('"supported"', '"Supported"'))
    ),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_a_reply_is_read_as_the_server_writes_it(tmp_path: Path, how: str) -> None:
    row, _ = judged(tmp_path, WRITTEN[how])
    assert [verdict["label"] for verdict in row["verdicts"]] == VERDICTS


@pytest.mark.parametrize("code", [429, "rate_limit_exceeded", None])
def test_an_error_within_a_200_is_retried(tmp_path: Path, code: object) -> None:
    error = json.dumps({"error": {"message": "Provider returned error", "code": code}}).encode()
    seen: list[int] = []

    def rule(request: Mapping[str, Any]) -> Said:
        seen.append(1)
        return Said(body=error) if len(seen) == 1 else Said(body=completion(request))

    row, judge = judged(tmp_path, rule)
    assert [verdict["label"] for verdict in row["verdicts"]] == VERDICTS
    assert judge.requests == 3


def test_a_prompt_that_the_server_cut_is_a_failure_with_advice(tmp_path: Path) -> None:
    row, judge = judged(
        tmp_path,
        lambda request: Said(
            body=completion(
                request,
                {
                    "prompt_tokens": 400 if '"verdicts"' not in json.dumps(request) else 2_048,
                    "completion_tokens": 20,
                },
            )
        ),
    )
    assert (row["status"], row["error_type"]) == ("error", "context_cut")
    assert judge.requests == 2


def test_a_time_out_is_called_one(tmp_path: Path) -> None:
    row, _ = judged(tmp_path, lambda request: Said(hangs=True), "--set", "judge.timeout=500ms")
    assert row["error_type"] == "judge_timeout"
