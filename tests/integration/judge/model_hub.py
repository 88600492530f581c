"""A hub of models on loopback, as far as its client asks: lists of files, and the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

_COMMIT: Final = "c" * 40


@contextmanager
def model_hub(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Offer a folder as a repository; yield the hub's URL and the files that were downloaded."""
    taken: list[str] = []
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _answer(self, *, with_body: bool) -> None:
            path = urlsplit(self.path).path
            file = path.removeprefix(f"/{name}/resolve/{_COMMIT}/")
            if file in files and with_body:
                taken.append(file)
            body = files[file].read_bytes() if file in files else self._listed(path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.send_header("X-Repo-Commit", _COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(body or b"", usedforsecurity=False).hexdigest()}"')
            self.end_headers()
            if with_body:
                self.wfile.write(body or b"")

        def _listed(self, path: str) -> bytes | None:
            if path.startswith(f"/api/models/{name}/tree/"):
                entries = [
                    {"type": "file", "path": file, "size": at.stat().st_size, "oid": "0" * 40}
                    for file, at in files.items()
                ]
                return json.dumps(entries).encode()
            if path == f"/api/models/{name}" or path.startswith(f"/api/models/{name}/revision/"):
                siblings = [{"rfilename": file} for file in files]
                return json.dumps({"id": name, "sha": _COMMIT, "siblings": siblings}).encode()
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
