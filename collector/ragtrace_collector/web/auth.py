"""Authentication in front of receivers and pages, from the configuration: certificate, tokens, exposure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import yaml
from pydantic import TypeAdapter, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig, ReceiveConfig, TokenConfig
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.web.server import Certificate, is_loopback
from ragtrace_collector.web.tokens import KnownHosts, TokenAuth, TokenGrant

log = logging.getLogger("ragtrace.collector")

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
