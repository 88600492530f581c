"""An authority of the test's own, and the files that it signs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A certificate and its key, in PEM form."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1, into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._signer = trustme.CA(organization_name=name)
        self._folder = folder
        self.ca = folder / f"{name}.crt"
        self._signer.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str) -> Files:
        """Write a certificate; over one of the same name, it is a new one."""
        leaf = self._signer.issue_cert(*(hosts or ("127.0.0.1", "localhost")), common_name=name)
        files = Files(cert=self._folder / f"{name}.crt", key=self._folder / f"{name}.key")
        files.cert.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(files.key))
        return files
