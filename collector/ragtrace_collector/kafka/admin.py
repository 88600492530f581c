"""An admin client that knows why the brokers did not answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ragtrace_collector.kafka.errors import text_of

_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 -- named so by librdkafka
_ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_AWAY: Final = frozenset(
    {_ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}  # noqa: SLF001
)


class LastError:
    """What was said last of a client's connections."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Be the client's ``error_cb``."""
        if error.code() != _ALL_BROKERS_DOWN:  # it says less than what was told of each
            self._last = error

    def take(self) -> KafkaError | None:
        """Return it, and forget it."""
        last, self._last = self._last, None
        return last


class Admin(AdminClient):
    """Remembers the last error of its connections: its answers say only that none came."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Connect when it is used."""
        self.last_error = LastError()  # no method of its own: a client that calls itself back stays until gc
        noting: dict[str, Any] = {"log_level": 0, **settings, "error_cb": self.last_error.note}
        super().__init__(noting)

    def reason(self, exc: KafkaException) -> str:
        """Return what the brokers do, as the end of a sentence: ``do not answer: …`` or ``refuse: …``."""
        self.poll(0)  # calls back
        answer: KafkaError = exc.args[0]
        if answer.code() not in _AWAY:
            return f"refuse: {text_of(answer)}"
        error = self.last_error.take() or answer
        is_refused = error.code() == _AUTHENTICATION
        return f"{'refuse the credentials' if is_refused else 'do not answer'}: {text_of(error)}"
