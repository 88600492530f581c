"""One home for HTTP: who makes a client, and who parses ``Retry-After``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, imports_in, modules

HTTPX = {
    *("AsyncClient", "Client", "AsyncHTTPTransport", "HTTPTransport"),
    *("get", "post", "put", "patch", "delete", "head", "request", "stream"),
}
MAKERS = {
    "httpx": HTTPX,
    "httpx2": HTTPX,
    "aiohttp": {"ClientSession", "request"},
    "requests": {"Session", "session", "get", "post", "put", "patch", "delete", "head", "request"},
    "urllib3": {"PoolManager", "HTTPConnectionPool", "HTTPSConnectionPool", "ProxyManager", "request"},
    "urllib.request": {"urlopen", "build_opener", "urlretrieve", "OpenerDirector"},
    "http.client": {"HTTPConnection", "HTTPSConnection"},
    "openai": {
        *("OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI"),
        *("DefaultHttpxClient", "DefaultAsyncHttpxClient", "DefaultAioHttpClient"),
    },
    "anthropic": {"Anthropic", "AsyncAnthropic", "DefaultHttpxClient", "DefaultAsyncHttpxClient"},
    "opentelemetry.exporter": {"OTLPSpanExporter", "OTLPMetricExporter", "OTLPLogExporter"},
}
"""What makes a client of HTTP, by module."""
MAY = {
    "ragtrace/http/client.py": {"httpx.AsyncClient"},
    "ragtrace/http/exporters.py": {
        "requests.Session",
        "opentelemetry.exporter.OTLPSpanExporter",
        "opentelemetry.exporter.OTLPMetricExporter",
    },
    "ragtrace/judge/access.py": {
        "openai.AsyncOpenAI",
        "openai.DefaultAioHttpClient",
        "openai.DefaultAsyncHttpxClient",
    },
    "ragtrace/judge/anthropic.py": {"anthropic.AsyncAnthropic", "anthropic.DefaultAsyncHttpxClient"},
}
"""Who may make one. An SDK's own client is made of what `ragtrace.http` says."""


def test_no_other_module_makes_a_client() -> None:
    found = {}
    for folder in ("ragtrace", "collector/ragtrace_collector"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if made := set(clients_made(file)):
                found[str(file.relative_to(ROOT))] = made
    assert found == MAY


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("import httpx\nhttpx.get('x')", {"httpx.get"}),
        ("import httpx as h\nh.AsyncClient()", {"httpx.AsyncClient"}),
        ("from httpx import AsyncClient as C\nC()", {"httpx.AsyncClient"}),
        ("def f():\n from urllib.request import urlopen\n urlopen('x')", {"urllib.request.urlopen"}),
        ("import urllib.request\nurllib.request.urlopen('x')", {"urllib.request.urlopen"}),
        ("from urllib import request\nrequest.urlopen('x')", {"urllib.request.urlopen"}),
        ("class C(requests.Session): ...\nimport requests", {"requests.Session"}),
        (
            "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as E\nE()",
            {"opentelemetry.exporter.OTLPSpanExporter"},
        ),
        ("import httpx\ndef f(r: httpx.Response) -> None: ...", set()),
    ],
)
def test_a_client_is_found_however_it_is_made(code: str, made: set[str], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(code)
    assert set(clients_made(tmp_path / "m.py")) == made


def clients_made(file: Path) -> Iterator[str]:
    """Yield what makes a client in a module, as ``module.name``, where it is named in code that runs."""
    tree = ast.parse(file.read_text())
    names = dict(imported(tree))
    for _, whole in imported(tree):
        yield from makers_in(whole)
    for node in ast.walk(tree):
        path = dotted(node)
        if path is None:
            continue
        first, _, rest = path.partition(".")
        whole = ".".join(filter(None, (names.get(first, first), rest)))
        if (made := [*makers_in(whole)]) and not is_annotation(node, tree):
            yield from made


def makers_in(whole: str) -> Iterator[str]:
    name = whole.rpartition(".")[2]
    for module, makers in MAKERS.items():
        if whole.startswith(f"{module}.") and name in makers:
            yield f"{module}.{name}"


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (
                    each.asname or each.name.partition(".")[0],
                    each.name if each.asname else (each.name.partition(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def is_annotation(node: ast.AST, tree: ast.AST) -> bool:
    """Say whether it only names a type: of an argument, of what is returned, of a variable."""
    for each in ast.walk(tree):
        types = [getattr(each, "annotation", None), getattr(each, "returns", None)]
        if any(node in ast.walk(kind) for kind in types if isinstance(kind, ast.AST)):
            return True
    return False


PARSERS = {"parsedate_to_datetime", "parsedate", "parsedate_tz"}
RETRY_AFTER = {
    "ragtrace/http/retry.py": "parses it",
    "collector/ragtrace_collector/web/errors.py": "answers it",
}


def test_no_other_module_parses_retry_after() -> None:
    naming = {
        str(module.path.relative_to(ROOT))
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and str(node.value).lower() in ("retry-after", "retry-after-ms")
    }
    assert naming == set(RETRY_AFTER)
    parsing = {m.name for m in modules() for _, name in imports_in(m.tree) if name in PARSERS}
    assert parsing == {"ragtrace.http.retry"}
