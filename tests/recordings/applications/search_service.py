"""A retriever behind HTTP, as a service of its own: it traces itself, and joins its caller's trace.

python -m tests.recordings.applications.search_service OTLP_URL
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from urllib.parse import parse_qs, urlsplit

from opentelemetry import propagate, trace

from tests.recordings.applications.application import chunk
from tests.recordings.instrumentations import INSTRUMENTATIONS


def main() -> None:
    """Print the port, then serve until the process is ended."""
    with INSTRUMENTATIONS["openinference"](sys.argv[1], ("langchain",)):
        retriever = import_module("langchain_app").retriever()

        class Search(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tracer = trace.get_tracer("search")
                context = propagate.extract(dict(self.headers))
                with tracer.start_as_current_span("GET /search", context, trace.SpanKind.SERVER):
                    found = retriever.invoke(parse_qs(urlsplit(self.path).query)["q"][0])
                body = json.dumps([chunk(each.id, each.page_content) for each in found]).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = HTTPServer(("127.0.0.1", 0), Search)
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
