"""The sections about who may connect, and how connections are secured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from ragtrace.http import ClientTls
from ragtrace_collector.config.values import Section, Size

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


class TlsConfig(Section):
    """How a connection that goes out is secured, beyond what the system's own certificates do."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def opened(self) -> ClientTls:
        """Return what clients take."""
        return ClientTls(ca=self.ca, cert=self.cert, key=self.key)

    @model_validator(mode="after")
    def _both_or_none(self) -> TlsConfig:
        if (self.cert is None) is not (self.key is None):
            raise ValueError("`cert` and `key` belong together: name both files, or none")
        return self


class ReceiveTlsConfig(Section):
    """The receivers' certificate, and whose certificates they ask for."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class TokenLimitsConfig(Section):
    """What one token may send a minute."""

    spans: int | None = Field(default=None, gt=0)
    bytes: Size | None = None


class TokenConfig(Section):
    """One bearer token, by its digest: the token itself is stored nowhere."""

    name: str = Field(min_length=1)
    sha256: str
    tenant: str | None = Field(default=None, min_length=1)
    may: tuple[Literal["send", "read", "review"], ...] = Field(default=("send",), min_length=1)
    limits: TokenLimitsConfig = TokenLimitsConfig()

    @field_validator("sha256")
    @classmethod
    def _is_digest(cls, value: str) -> str:
        if not _SHA256.fullmatch(value):
            # not quoted: it may be the token itself
            raise ValueError("write the 64 hex digits of the token's SHA-256, never the token itself")
        return value.lower()
