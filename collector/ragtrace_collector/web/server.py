"""The HTTP server of receivers and pages, the certificate of both protocols, and who may send and look."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import grpc
import uvicorn
import yaml
from google.rpc import code_pb2
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ragtrace.errors import ConfigError
from ragtrace.escaping import escaped_json
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig, ReceiveConfig, TokenConfig
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.web.connections import HEADERS_TIMEOUT_S, AsgiApp, BoundedApp
from ragtrace_collector.web.tokens import KnownHosts, RequestRefused, TokenAuth, TokenGrant, error_answer

log = logging.getLogger("ragtrace.collector")


class Certificate:
    """A certificate with its key, and the CA that clients' certificates must come from. TLS 1.2 or later.

    A reload does not affect open connections. The CA stays until a restart.

    Raises:
        ConfigError: a file cannot be read, or the key is not the certificate's.
    """

    def __init__(self, *, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key = cert, key
        self._authority = _read("client_ca", client_ca) if client_ca else None
        self.context = self._new_context()
        """The context of the HTTP receiver."""
        self._pair = _read("key", key), _read("cert", cert)
        self._sent = self._pair

    def reload(self) -> None:
        """Read certificate and key again. If they cannot be used, the current ones stay.

        Raises:
            ConfigError: a file cannot be read, or the key is not the certificate's.
        """
        self._new_context()
        self._load_into(self.context)
        self._pair = _read("key", self._key), _read("cert", self._cert)

    def for_grpc(self) -> grpc.ServerCredentials:
        """Return the credentials of the gRPC receiver."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._newer,  # type: ignore[arg-type]  # grpc's docs, but not its types, allow None for "no change"
            require_client_authentication=self._authority is not None,
        )

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a newer certificate. gRPC calls this in its own thread before each handshake."""
        if self._sent is self._pair:
            return None
        return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self._sent = self._pair
        return grpc.ssl_server_certificate_configuration([self._sent], self._authority)

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_2
        )  # gRPC has the same minimum, and it cannot be set there
        self._load_into(context)
        if self._authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cadata=self._authority.decode("ascii"))
            except (ssl.SSLError, ValueError) as exc:
                raise ConfigError("`receive.tls.client_ca`: it holds no PEM certificate") from exc
        return context

    def _load_into(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(
                self._cert, self._key, password=""
            )  # without one, OpenSSL asks on the terminal
        except (OSError, ssl.SSLError) as exc:
            raise ConfigError(
                f"`receive.tls`: {str(self._cert)!r} and {str(self._key)!r} cannot be used ({_why(exc)}): "
                "name a certificate (chain) and its key, both in PEM form, the key without a password"
            ) from exc


def _read(what: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"`receive.tls.{what}`: {str(path)!r} cannot be read: {exc.strerror}") from exc


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return error.strerror or type(error).__name__


def is_loopback(endpoint: str) -> bool:
    """Say whether ``host:port`` can be reached from this machine only."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_socket(endpoint: str, *, key: str = "receive.http", is_shared: bool = False) -> socket.socket:
    """Bind ``host:port``, alone or beside other processes; ``key`` is its configuration key.

    Raises:
        ConfigError: the address cannot be bound.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, reuse_port=is_shared)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"`{key}`: cannot listen on {endpoint!r}: {exc}") from exc


class HttpServer(uvicorn.Server):
    """uvicorn as a task. The service handles the signals."""

    def __init__(
        self, app: Starlette, listening: socket.socket, *, certificate: Certificate | None = None
    ) -> None:
        self._listening = listening
        bounded = BoundedApp(app)
        context = certificate.context if certificate else None
        protocol = _protocol(app)
        super().__init__(
            _config(
                bounded,
                http=cast(
                    "type[asyncio.Protocol]", lambda **of_server: bounded.connect(protocol(**of_server))
                ),
                ssl_context_factory=(lambda *_: context) if context else None,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the socket until stopped."""
        try:
            await super().serve(sockets or [self._listening])
        finally:
            self._listening.close()  # uvicorn does not if it is cancelled

    def stop(self) -> None:
        """Accept no more requests; ``serve`` returns after answering the open ones."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: AsgiApp, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="error",  # at WARNING, it logs each request that is not HTTP
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=ceil(HEADERS_TIMEOUT_S),
        timeout_graceful_shutdown=5,
        **options,
    )


def _protocol(app: AsgiApp) -> Callable[..., asyncio.Protocol]:
    """Return uvicorn's own protocol."""
    config = _config(app, http="httptools")
    config.load()
    return config.http_protocol_class


Status = Callable[[str | None], Awaitable[Mapping[str, object]]]
"""Returns the collector's status. A tenant sees only its own part."""
PageHandler = Callable[[Request], Awaitable[Response]]


class JsonPage(JSONResponse):
    """A JSON response in which control characters and lone surrogates are escaped."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return escaped_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()


def guarded(page: PageHandler, access: TokenAuth, *, of_all: bool = False) -> PageHandler:
    """Show a page to those alone whose token may read, where tokens are asked for.

    ``of_all`` says that the page tells of all tenants at once: to a token of one of them it is not shown.
    """

    async def shown(request: Request) -> Response:
        try:
            access.check_host(request.headers.get("host"))
            sender = access.admit(request.headers.get("authorization"), "read")
            request.state.tenant = sender.tenant if sender else None
            if of_all and request.state.tenant is not None:
                raise RequestRefused(
                    code_pb2.PERMISSION_DENIED,
                    "this token reads what is of its tenant alone, and this page tells of all: "
                    "read it by a token without a `tenant`",
                )
        except RequestRefused as exc:
            return error_answer("json", exc)
        return await page(request)

    return shown


def reader_of(request: Request) -> str | None:
    """Return the tenant that a page is shown to; ``None`` for one who may see those of all."""
    tenant: str | None = request.state.tenant
    return tenant


_TOKENS: Final = TypeAdapter(tuple[TokenConfig, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverAuth:
    """Who may connect, send and read."""

    access: TokenAuth
    certificate: Certificate | None

    def reload(self, receive: ReceiveConfig) -> None:
        """Use other tokens, and read the certificate's files again. If one is wrong, nothing changes.

        Raises:
            ConfigError: a file cannot be used.
        """
        grants = _grants(receive)
        if self.certificate is not None:
            self.certificate.reload()
        self.access.replace(grants)


def open_auth(config: CollectorConfig, clock: Clock) -> ReceiverAuth:
    """Read tokens and certificates.

    Raises:
        ConfigError: a file cannot be used, or an address is open to everyone without `insecure`.
    """
    check_page(config)
    _check_exposure(config)
    access = TokenAuth(_grants(config.receive), clock, hosts=_hosts(config))
    tls = config.receive.tls
    certificate = Certificate(cert=tls.cert, key=tls.key, client_ca=tls.client_ca) if tls else None
    return ReceiverAuth(access=access, certificate=certificate)


def _check_exposure(config: CollectorConfig) -> None:
    exposed = [address for address in _addresses(config) if not is_loopback(address)]
    missing = _missing(config.receive)
    if not exposed or not missing:
        return
    if not config.receive.insecure:
        raise ConfigError(
            f"other machines reach {' and '.join(exposed)}, without {missing}: set `receive.tls` and "
            "`receive.tokens` (or `receive.tls.client_ca`), listen on 127.0.0.1, or set "
            "`receive.insecure: true` if something in front of the collector authenticates senders"
        )
    log.warning(
        "`receive.insecure`: other machines reach %s, without %s",
        " and ".join(exposed),
        missing,
        extra=event("exposed"),
    )


def check_page(config: CollectorConfig) -> None:
    """See that other machines need a token for the page, which shows what people asked.

    `receive.insecure` is about senders: it does not open the page to everyone.

    Raises:
        ConfigError: they would need none.
    """
    listen, receive = config.ui.listen, config.receive
    if listen is not None and not is_loopback(listen) and not (receive.tokens or receive.tokens_file):
        raise ConfigError(
            f"`ui.listen`: other machines reach {listen}, and the page shows answers: listen on 127.0.0.1, or"
            " set `receive.tokens` in the configuration (docs/security.md)"
        )


def _hosts(config: CollectorConfig) -> KnownHosts | None:
    """Return the host names to check. With TLS there are none: the certificate proves the name."""
    if config.receive.tls is not None:
        return None
    public = urlsplit(config.ui.public_url or "").hostname
    allowed = (*config.receive.allowed_hosts, *((public,) if public else ()))
    return KnownHosts(listening=_addresses(config), allowed=allowed)


def _grants(receive: ReceiveConfig) -> tuple[TokenGrant, ...]:
    grants = tuple(map(_grant, (*receive.tokens, *_tokens_in_file(receive))))
    names = [grant.name for grant in grants]
    digests = [grant.digest for grant in grants]
    for grant in grants:
        if names.count(grant.name) > 1 or digests.count(grant.digest) > 1:
            raise ConfigError(f"`receive.tokens`: {grant.name!r}, or its token, is listed twice")
    return grants


def _addresses(config: CollectorConfig) -> Iterator[str]:
    for address in (config.receive.grpc, config.receive.http, config.telemetry.listen, config.ui.listen):
        if address is not None:
            yield address


def _missing(receive: ReceiveConfig) -> str:
    has_tokens = bool(receive.tokens or receive.tokens_file)
    knows_senders = has_tokens or (receive.tls is not None and receive.tls.client_ca is not None)
    lacking = [] if receive.tls is not None else ["TLS"]
    return " and ".join(lacking if knows_senders else [*lacking, "tokens"])


def _grant(token: TokenConfig) -> TokenGrant:
    limits = token.limits
    a_minute = {"spans": limits.spans, "bytes": limits.bytes}
    return TokenGrant(
        name=token.name,
        digest=bytes.fromhex(token.sha256),
        tenant=token.tenant,
        may=frozenset(token.may),
        a_minute={what: most for what, most in a_minute.items() if most is not None},
    )


def _tokens_in_file(receive: ReceiveConfig) -> tuple[TokenConfig, ...]:
    path = receive.tokens_file
    if path is None:
        return ()
    try:
        return _TOKENS.validate_python(yaml.safe_load(path.read_text("utf-8")) or ())
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"`receive.tokens_file`: {str(path)!r} cannot be read: {exc}") from exc
    except (yaml.YAMLError, ValidationError, RecursionError):
        # do not quote the content: it may be a token
        raise ConfigError(
            f"`receive.tokens_file`: {str(path)!r} is not a list of tokens: write lines such as "
            "- {{name: checkout, sha256: HEX}}"
        ) from None
