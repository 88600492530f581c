"""Tokens and host names: who sends, and what a token may; refused requests, as answers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from starlette.responses import Response

from ragtrace.errors import CodecError, RagtraceError
from ragtrace.ports import Clock
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.store.records import StoreUnavailable

RETRY_AFTER_S: Final = 5
_HTTP_STATUS: Final = {
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.UNAUTHENTICATED: 401,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.UNAVAILABLE: 503,
}


class RequestRefused(RagtraceError):
    """An error response to a sender: the gRPC code, or the HTTP status.

    If a retry may help, it says when: otherwise a conforming sender drops the request.
    """

    def __init__(
        self, code: int, message: str, *, http_status: int | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status or _HTTP_STATUS[code]
        self.retry_after_s = retry_after_s


def refusal_of(error: CodecError | StoreUnavailable | RequestRefused) -> RequestRefused:
    """Return the response to a request that could not be accepted."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, CodecError):
        return RequestRefused(code_pb2.INVALID_ARGUMENT, str(error))
    return RequestRefused(code_pb2.UNAVAILABLE, str(error), retry_after_s=RETRY_AFTER_S)


def too_slow() -> RequestRefused:
    """Return the response to a request that was too slow while others waited for its memory."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        "the request came too slowly while others waited for its memory: send smaller batches",
        retry_after_s=RETRY_AFTER_S,
    )


def too_large(limit: int) -> RequestRefused:
    """Return the response to a request with more bytes than the configuration allows."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        f"the request is larger than `receive.max_message_bytes` ({limit}): send smaller batches",
        http_status=413,
    )


def status_of(refusal: RequestRefused) -> status_pb2.Status:
    """Return the ``google.rpc.Status`` that OTLP prescribes, with ``RetryInfo`` if a retry may help."""
    status = status_pb2.Status(code=refusal.code, message=str(refusal))
    if refusal.retry_after_s is not None:
        delay = Duration(seconds=refusal.retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def answer(encoding: Encoding, http_status: int, message: Message) -> Response:
    """Answer with a protobuf message."""
    if encoding == "json":
        content = json.dumps(json_format.MessageToDict(message)).encode()
        return Response(content, status_code=http_status, media_type="application/json")
    return Response(message.SerializeToString(), status_code=http_status, media_type="application/x-protobuf")


def error_answer(encoding: Encoding, refusal: RequestRefused) -> Response:
    """Answer with a ``google.rpc.Status`` in the sender's own encoding (OTLP/HTTP specification)."""
    response = answer(encoding, refusal.http_status, status_of(refusal))
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.http_status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


_OF_THIS_MACHINE: Final = (".localhost", ".internal")
"""Domains in which no name can be registered: RFC 6761, and ICANN's domain for private use."""
_ANY: Final = "*."
_HEADER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
_SHOWN: Final = 80


class KnownHosts:
    """Names of this machine, addresses, names without a dot, and the configured names."""

    def __init__(self, *, listening: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """Take the listening addresses (``host:port``), and the allowed names or ``*.name``."""
        names = {name.lower() for name in allowed}
        self._names = {_host(address) for address in listening} | {n for n in names if not n.startswith(_ANY)}
        self._endings = (*_OF_THIS_MACHINE, *(n.removeprefix("*") for n in names if n.startswith(_ANY)))

    def check(self, header: str | None) -> None:
        """Check the header ``Host``. An HTTP/1.0 client sends none; a browser always does.

        Raises:
            RequestRefused: the collector doesn't have that name.
        """
        if header is None or self._knows(_host(header)):
            return
        raise RequestRefused(
            code_pb2.PERMISSION_DENIED,
            f"the request names the host {header[:_SHOWN]!r}, which is none of the collector's names: "
            "use its address, or add the name to `receive.allowed_hosts`",
            http_status=421,
        )

    def _knows(self, host: str | None) -> bool:
        if not host:
            return False
        return _is_address(host) or "." not in host or host in self._names or host.endswith(self._endings)


def _host(header: str) -> str | None:
    """Return the name or address without the port, in lower case; ``None`` if there is something else."""
    found = _HEADER.fullmatch(header)
    return (found[1] or found[2]).lower().removesuffix(".") if found else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


Permission = Literal["send", "read", "review"]
"""``send`` spans; ``read`` the collector's pages; ``review`` what they show."""

_MINUTE_NS: Final = 60_000_000_000
_DOING: Final[Mapping[Permission, str]] = {
    "send": "send spans",
    "read": "read this page",
    "review": "review answers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """The permissions and limits of one token."""

    name: str
    digest: bytes
    tenant: str | None = None
    may: frozenset[Permission] = frozenset({"send"})
    a_minute: Mapping[str, int] = field(default_factory=dict)
    """The limits of ``spans`` and ``bytes``; one that is not named is unlimited."""


class TokenSender:
    """The sender that a token identifies, with its remaining allowance of this minute."""

    def __init__(self, grant: TokenGrant, clock: Clock) -> None:
        self.grant = grant
        self._clock = clock
        self._left = {what: float(most) for what, most in grant.a_minute.items()}
        self._filled_ns = clock.now_ns()

    @property
    def tenant(self) -> str | None:
        """The tenant of the sender's spans, whatever the spans say."""
        return self.grant.tenant

    def charge(self, *, requests: int = 0, spans: int = 0, bytes: int = 0) -> None:  # noqa: A002 -- as in the file
        """Take a request's content from the allowance.

        The allowance may fall below zero, because the content is known only after reading. Later requests
        then wait until it is refilled, so that no request is refused for good because it is large.
        """
        used = {"requests": requests, "spans": spans, "bytes": bytes}
        for what in self._left:
            self._left[what] -= used[what]

    def check(self) -> None:
        """See that the allowance is not used up.

        Raises:
            RequestRefused: it is used up; with the time to wait.
        """
        if not self._left:
            return
        self._fill()
        waits_s = [
            (1 - left) * 60 / self.grant.a_minute[what] for what, left in self._left.items() if left < 1
        ]
        if waits_s:
            raise RequestRefused(
                code_pb2.RESOURCE_EXHAUSTED,
                "the token's allowance for this minute is used up: send more slowly",
                retry_after_s=math.ceil(max(waits_s)),
            )

    def _fill(self) -> None:
        now_ns = self._clock.now_ns()
        minutes = max(0, now_ns - self._filled_ns) / _MINUTE_NS  # a clock that was set back refills nothing
        self._filled_ns = now_ns
        for what, most in self.grant.a_minute.items():
            self._left[what] = min(most, self._left[what] + most * minutes)


class TokenAuth:
    """Authentication of receivers and pages. Without tokens, everyone may do everything."""

    def __init__(
        self, grants: Sequence[TokenGrant], clock: Clock, *, hosts: KnownHosts | None = None
    ) -> None:
        """``hosts`` are checked as long as no tokens are configured."""
        self._clock = clock
        self._hosts = hosts
        self._senders: tuple[TokenSender, ...] = ()
        self.replace(grants)

    def replace(self, grants: Sequence[TokenGrant]) -> None:
        """Use other tokens from now on. A token that stays keeps its remaining allowance."""
        kept = [sender for sender in self._senders if sender.grant in grants]
        new = [grant for grant in grants if all(sender.grant != grant for sender in kept)]
        self._senders = (*kept, *(TokenSender(grant, self._clock) for grant in new))

    @property
    def needs_tokens(self) -> bool:
        """Whether senders need a token."""
        return bool(self._senders)

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that tokens name."""
        return frozenset(sender.tenant for sender in self._senders if sender.tenant is not None)

    @property
    def is_open(self) -> bool:
        """Whether no tokens are configured."""
        return not self._senders

    def has(self, grant: TokenGrant) -> bool:
        """Say whether a token is still configured as it was."""
        return any(sender.grant == grant for sender in self._senders)

    def check_host(self, header: str | None) -> None:
        """Check the host name of a request if no tokens are configured.

        Raises:
            RequestRefused: it is not one of the collector's names.
        """
        if self._hosts is not None and not self._senders:
            self._hosts.check(header)

    def admit(self, authorization: str | None, permission: Permission) -> TokenSender | None:
        """Return the sender, or ``None`` if no tokens are configured.

        Raises:
            RequestRefused: the token is missing, unknown, not permitted, or out of its allowance.
        """
        if not self._senders:
            return None
        sender = self._bearer(authorization)
        if permission not in sender.grant.may:
            raise RequestRefused(
                code_pb2.PERMISSION_DENIED,
                f"this token may not {_DOING[permission]}: add {permission!r} to its `may`",
            )
        if permission == "send":
            sender.check()
            sender.charge(requests=1)
        return sender

    def _bearer(self, authorization: str | None) -> TokenSender:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise RequestRefused(code_pb2.UNAUTHENTICATED, "send a token: `authorization: Bearer TOKEN`")
        digest = digest_of(token.strip())
        found = None
        for sender in self._senders:  # compare all of them, so that the time reveals nothing
            if hmac.compare_digest(sender.grant.digest, digest):
                found = sender
        if found is None:
            raise RequestRefused(code_pb2.UNAUTHENTICATED, "this token is not known here")
        return found


def digest_of(token: str) -> bytes:
    """Return the digest that is stored for a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
