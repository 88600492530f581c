"""TLS settings of outgoing connections."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from ragtrace.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A certificate authority in place of the system's, and a client certificate. Files in PEM form."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    """The certificate's key, without a password."""

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for HTTP clients.

        Raises:
            ConfigError: a file cannot be used.
        """
        try:
            context = _trusting(self.ca)
            if self.cert is not None:
                context.load_cert_chain(
                    self.cert, self.key, password=""
                )  # otherwise OpenSSL prompts on the terminal
        except OSError as exc:
            raise ConfigError(
                f"`tls`: {self._names()} cannot be used ({_why(exc)}): name files in PEM form, "
                "and with `cert` its own `key`, which has no password"
            ) from exc
        return context

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return the contents of authority, key and certificate, in gRPC's order.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.context()
        ca, key, cert = (path.read_bytes() if path else None for path in (self.ca, self.key, self.cert))
        return ca, key, cert

    def _names(self) -> str:
        return " or ".join(repr(str(path)) for path in (self.ca, self.cert, self.key) if path)


def _trusting(ca: Path | None) -> ssl.SSLContext:
    if ca is not None:
        return ssl.create_default_context(cafile=ca)
    import httpx

    # certifi's certificates or those of SSL_CERT_FILE, because not every system has its own
    return httpx.create_ssl_context()


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not in PEM form").replace("_", " ").lower()
    return error.strerror or type(error).__name__
