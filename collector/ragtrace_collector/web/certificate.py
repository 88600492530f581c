"""The receivers' certificate: one pair of files for both protocols, read again on reload."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from ragtrace.errors import ConfigError


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
