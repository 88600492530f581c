"""Where notices go: webhooks, signed as standardwebhooks.com says, and Slack. Neither URL is in a message."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ragtrace.errors import ConfigError, SendRefused, SendRejected, SendRetryable
from ragtrace.http import open_client, redirected_to
from ragtrace.http.retry import REPEATABLE, retry_after_s_in
from ragtrace.ports import Clock
from ragtrace_collector.alerts.notices import slack_form
from ragtrace_collector.config import AlertSinkConfig

if TYPE_CHECKING:
    import httpx

_MOST_BYTES: Final = 64 << 10
_REFUSING: Final = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 405, 407, 410})
"""The address or the key is wrong, whatever is sent: kept, and tried again."""
_ENCODED: Final = "whsec_"


@dataclass(slots=True, kw_only=True)
class NoticeSink:
    """Posts notices to one address. It connects on the first."""

    config: AlertSinkConfig
    clock: Clock
    _client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """Its name in the configuration and the host: the rest of the URL may be a secret."""
        return f"{self.config.key} ({urlsplit(self._url).hostname})"

    async def send(self, request: bytes) -> None:
        """Post one notice; on return it was accepted.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRefused: the address or the key is wrong.
            SendRejected: this notice will never be accepted.
        """
        import httpx

        body = self._body(request)
        headers = self._headers(body, id_=json.loads(request)["id"])
        try:
            async with asyncio.timeout(self.config.timeout.total_seconds()):
                response = await self._open().post(self._url, content=body, headers=headers)
        except TimeoutError as exc:
            raise SendRetryable(
                f"{self.name} did not answer within {self.config.timeout.total_seconds():g} s"
            ) from exc
        except (httpx.HTTPError, httpx.InvalidURL) as exc:  # their texts may quote the URL
            raise SendRetryable(f"{self.name} could not be reached: {type(exc).__name__}") from None
        self._raise_for_status(response)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @property
    def _url(self) -> str:
        url = self.config.webhook or self.config.slack
        assert url is not None  # the configuration has one of them
        return url.get_secret_value()

    def _body(self, request: bytes) -> bytes:
        return json.dumps(slack_form(json.loads(request))).encode() if self.config.slack else request

    def _headers(self, body: bytes, *, id_: str) -> Mapping[str, str]:
        own = {name: value.get_secret_value() for name, value in self.config.headers.items()}
        sent = {**own, "content-type": "application/json", "webhook-id": id_}
        if self.config.secret is not None:
            seconds = str(self.clock.now_ns() // 1_000_000_000)
            sent["webhook-timestamp"] = seconds
            key = signing_key(self.config.secret.get_secret_value())
            sent["webhook-signature"] = signature(key, id_=id_, seconds=seconds, body=body)
        return sent

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = open_client(timeout_s=self.config.timeout.total_seconds(), most_bytes=_MOST_BYTES)
        return self._client

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        host = redirected_to(response)
        pointing = f": it redirects to {host}, which is not followed" if host else ""
        message = f"{self.name} answered {response.status_code}{pointing}"
        if response.status_code in REPEATABLE.statuses:
            raise SendRetryable(message, retry_after_s=retry_after_s_in(response.headers))
        raise SendRefused(message) if response.status_code in _REFUSING else SendRejected(message)


def signing_key(secret: str) -> bytes:
    """Return the key of a secret: what follows in base64 after ``whsec_``, else the text itself.

    Raises:
        ConfigError: it begins with ``whsec_``, and no base64 follows.
    """
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        raise ConfigError("`alerts.to`: what follows `whsec_` in a `secret` is not base64") from None


def signature(key: bytes, *, id_: str, seconds: str, body: bytes) -> str:
    """Sign a request: HMAC-SHA256 of id, time and body, in base64."""
    signed = b".".join((id_.encode(), seconds.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
