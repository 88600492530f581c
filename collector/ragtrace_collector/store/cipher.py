"""Encryption at rest: the span content in the store can be read only with a key.

The cipher is AES-256-GCM-SIV (RFC 8452). It is safe for far more messages under one key than a store ever
writes, and tolerates a repeated nonce. Each payload is bound to its place and cannot be decrypted elsewhere.
Ids, times and outcomes are not content, and stay readable.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.errors import ConfigError
from ragtrace.extras import install_command
from ragtrace.sql import Db
from ragtrace_collector.store.records import StoreUnavailable, UnfitFile
from ragtrace_collector.telemetry.logs import event

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV


log = logging.getLogger("ragtrace.collector")

_MARK: Final = b"\x01"
"""No OTLP message begins with it, because protobuf does not allow field 0."""
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_HEADER_BYTES: Final = len(_MARK) + _ID_BYTES + _NONCE_BYTES
_ENCRYPTED_COLUMNS: Final = (
    ("slice", "payload"),
    ("parcel", "payload"),
    ("addition", "payload"),
    ("kept_carrier", "payload"),
    ("kept_carrier", "record"),
    ("answer_row", "question"),
    ("session_turn", "turn"),
    ("session_turn", "place"),
    ("session_turn", "checked"),
)


class Undecipherable(Exception):
    """Content that none of the keys decrypts."""

    def __init__(self, missing_key: str = "") -> None:
        super().__init__(missing_key)
        self.missing_key = missing_key
        """The id of the key that encrypted it; empty if it was changed, damaged or moved."""


@dataclass(frozen=True, slots=True)
class PayloadCipher:
    """Encrypts with its first key, and decrypts with any. Without keys, payloads stay as they are."""

    keys: Mapping[bytes, AESGCMSIV]
    """By id; the first one encrypts."""

    def encrypt(self, payload: bytes, place: str) -> bytes:
        """Encrypt a payload for its place."""
        if not self.keys:
            return payload
        key_id, key = next(iter(self.keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return b"".join((_MARK, key_id, nonce, key.encrypt(nonce, payload, place.encode())))

    def decrypt(self, payload: bytes, place: str) -> bytes:
        """Decrypt a payload; one that was written without a key is returned as it is.

        Raises:
            Undecipherable: the key that encrypted it is none of these, or it was changed, damaged or moved.
        """
        if not payload.startswith(_MARK):
            return payload
        key_id, nonce, sealed = payload[1:9], payload[9:_HEADER_BYTES], payload[_HEADER_BYTES:]
        if key_id not in self.keys:
            raise Undecipherable(key_id.hex())
        from cryptography.exceptions import InvalidTag

        try:
            return self.keys[key_id].decrypt(nonce, sealed, place.encode())
        except InvalidTag as exc:
            raise Undecipherable from exc

    def decrypt_or_nothing(self, payload: bytes, place: str) -> bytes:
        """Decrypt a text of a list; one that cannot be decrypted is empty, and the list goes on."""
        with suppress(Undecipherable):  # the answer's page says so
            return self.decrypt(payload, place)
        return b""

    def opened(self, payload: bytes, place: str) -> bytes:
        """Decrypt what the collector goes on with.

        Raises:
            StoreUnavailable: it was changed, damaged or moved. The log says so.
        """
        try:
            return self.decrypt(payload, place)
        except Undecipherable as exc:
            what = "a payload in the store cannot be decrypted: it was changed, damaged or moved"
            log.error("%s", what, extra=event("payload_unreadable"))  # noqa: TRY400 -- the traceback adds nothing
            raise StoreUnavailable(what) from exc

    def check(self, db: Db) -> None:
        """Check that the keys decrypt all that is stored, and note the key that encrypts from now on.

        Raises:
            UnfitFile: there are payloads that none of the keys decrypts.
        """
        for (key_id,) in db.execute("SELECT id FROM sealing_key").fetchall():
            if key_id not in self.keys:
                _forget_key(db, key_id)
        if self.keys:
            values = (next(iter(self.keys)),)
            db.execute("INSERT INTO sealing_key (id) VALUES (?) ON CONFLICT (id) DO NOTHING", values)


NO_CIPHER: Final = PayloadCipher({})


def open_cipher(keys: Sequence[str]) -> PayloadCipher:
    """Read keys of 32 random bytes in base64. The first encrypts, the others decrypt older payloads.

    Raises:
        ConfigError: a key is malformed, or the encryption library is not installed.
    """
    if not keys:
        return NO_CIPHER
    raw = [_key_bytes(number, key) for number, key in enumerate(keys)]
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
    except ImportError as exc:
        raise ConfigError(
            f"`store.encryption_keys` needs the extra `encryption`: {install_command('encryption')}"
        ) from exc
    try:
        return PayloadCipher({_key_id(key): AESGCMSIV(key) for key in raw})
    except UnsupportedAlgorithm as exc:
        raise ConfigError(
            "`store.encryption_keys`: this build of `cryptography` has no AES-GCM-SIV: "
            "install its wheel from PyPI"
        ) from exc


def _key_bytes(number: int, text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(
            f"`store.encryption_keys[{number}]`: not {_KEY_BYTES} bytes in base64: make one with "
            "`openssl rand -base64 32`"
        )
    return key


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"ragtrace store key " + key).digest()[:_ID_BYTES]


def _forget_key(db: Db, key_id: bytes) -> None:
    """Delete a key that encrypts no payload any more; raise if it still does."""
    prefix = _MARK + key_id
    for table, column in _ENCRYPTED_COLUMNS:
        found = db.execute(
            f"SELECT 1 FROM {table} WHERE substr({column}, 1, ?) = ? LIMIT 1",
            (len(prefix), prefix),
        ).fetchone()
        if found:
            raise UnfitFile(
                f"its content is encrypted with the key {key_id.hex()}, which is not among those given",
                "add that key to `store.encryption_keys`; after a newer key, it is needed only until what it "
                "encrypted was delivered and has expired",
            )
    db.execute("DELETE FROM sealing_key WHERE id = ?", (key_id,))
