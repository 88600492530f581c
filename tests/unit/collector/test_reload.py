"""Two configurations, told apart; and the last deadline of a stop."""

from __future__ import annotations

import pytest

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig, parse_config
from ragtrace_collector.operations import signals as reloading
from ragtrace_collector.operations.signals import changed_keys, digest_of, refuse_what_needs_a_restart


def config(text: str = "", *, key: str = "a secret") -> CollectorConfig:
    export = f"export: [{{endpoint: 'a:1', headers: {{x-key: '{key}'}}}}]\n"
    return parse_config(export + text, where="my.yaml", environ={})


def test_changed_keys_are_named_as_the_file_writes_them() -> None:
    after = config("sample: {ratio: 0.5}\nassemble: {linger: 1m}\ndrain_timeout: 1s")
    assert changed_keys(config(), after) == ("assemble.linger", "drain_timeout", "sample.ratio")


def test_a_secret_that_changed_is_a_change_and_is_not_told() -> None:
    before, after = config(key="one secret"), config(key="another secret")
    assert changed_keys(before, after) == ("export",)
    assert digest_of(before) == digest_of(after)
    with pytest.raises(ConfigError) as refused:
        refuse_what_needs_a_restart(before, after)
    assert str(refused.value) == "`export` changed, which needs a restart"


def test_what_says_the_same_has_one_digest() -> None:
    assert digest_of(config("sample: {ratio: 1.0}")) == digest_of(config())
    assert digest_of(config("sample: {ratio: 0.5}")) != digest_of(config())


@pytest.mark.parametrize("key", reloading._NEEDS_A_RESTART)
def test_what_needs_a_restart_is_a_key_of_the_configuration(key: str) -> None:
    keys = {name for name, _ in reloading._flat(config().model_dump())}
    assert any(reloading._is_within(name, key) for name in keys)
