"""Commands that only look into the store: none of the collector's secrets has to be there."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually
from tests.integration.cli.program import run
from tests.integration.collector.test_score_metrics import config, send
from tests.rag_spans import trace_id_of

pytestmark = pytest.mark.slow

SECRETS = ("RAGTRACE_TEST_KEY", "RAGTRACE_TEST_TOKEN", "RAGTRACE_TEST_JUDGE")
LOOKS = [
    ("ledger",),
    ("ledger", "--by", "reason"),
    ("why", trace_id_of(1)),
    ("tail", "--no-follow"),
    ("report",),
    ("drift", "status"),
]


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a collector with secrets, and stop it."""
    folder = tmp_path_factory.mktemp("collector")
    key = base64.b64encode(bytes(range(32))).decode()
    settings = config(folder, sample={"ratio": 1})
    secret = {
        "store": {**settings["store"], "encryption_keys": ["${env:RAGTRACE_TEST_KEY}"]},
        "export": [
            *settings["export"],
            {"endpoint": "http://127.0.0.1:9", "headers": {"authorization": "${env:RAGTRACE_TEST_TOKEN}"}},
        ],
        "judge": {"use": "lexical", "api_key": "${file:not-there}"},
        "drain_timeout": "1s",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name in SECRETS:
            patched.setenv(name, key)
        (folder / "not-there").write_text("key")
        with collector_process(folder, {**settings, **secret}) as collector:
            send(collector)
            store = str(folder / "store.db")
            eventually(
                lambda: " judged" in run("ledger", "--from", f"store:{store}").output, what="a judged answer"
            )
    (folder / "not-there").unlink()
    return folder / "collector.yaml"


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_who_looks_needs_no_secret(
    command: tuple[str, ...], configured: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*command, "--config", str(configured))
    assert done.exit_code == 0, done.output
    assert "RAGTRACE_TEST" not in done.output


def test_claims_that_cannot_be_decrypted_are_told_so(configured: Path) -> None:
    told = " ".join(run("why", trace_id_of(1), "--config", str(configured)).output.split())
    assert "the texts of its claims cannot be shown" in told
    assert "or set the variable that it is in" in told


def test_no_random_key_stands_in_for_what_is_shown(configured: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump(
            {
                **yaml.safe_load(configured.read_text()),
                "store": {"path": "${env:RAGTRACE_TEST_PLACE}/store.db"},
            }
        )
    )
    (tmp_path / "not-there").touch()
    done = run("ledger", "--config", str(tmp_path / "c.yaml"))
    assert done.exit_code == 2
    assert "needs the environment variable RAGTRACE_TEST_PLACE" in done.output


def test_who_serves_or_judges_needs_them(configured: Path) -> None:
    for command in (("collector", "--check"), ("ui", "--no-open")):
        done = run(*command, "--config", str(configured))
        assert done.exit_code == 2
        assert "not-there' cannot be read" in done.output
