"""One home for HTTP: who makes a client, and who parses ``Retry-After``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

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
_PACKAGES = tuple(module.partition(".")[0] for module in MAKERS)
MAY = {
    "ragtrace/http.py": {
        "httpx.AsyncClient",
        "requests.Session",
        "opentelemetry.exporter.OTLPSpanExporter",
        "opentelemetry.exporter.OTLPMetricExporter",
    },
    "ragtrace/judge/endpoint.py": {
        "openai.AsyncOpenAI",
        "openai.DefaultAioHttpClient",
        "openai.DefaultAsyncHttpxClient",
    },
    "ragtrace/judge/anthropic.py": {"anthropic.AsyncAnthropic", "anthropic.DefaultAsyncHttpxClient"},
}
"""Who may make one. An SDK's own client is made of what `ragtrace.http` says."""


def test_no_other_module_makes_a_client() -> None:
    made = {str(module.path.relative_to(ROOT)): set(clients_made(module.tree)) for module in modules()}
    assert {file: clients for file, clients in made.items() if clients} == MAY


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
def test_a_client_is_found_however_it_is_made(code: str, made: set[str]) -> None:
    assert set(clients_made(ast.parse(code))) == made


def clients_made(tree: ast.Module) -> Iterator[str]:
    """Yield what makes a client in a module, as ``module.name``, where it is named in code that runs."""
    found = tuple(imported(tree))
    if not any(whole.startswith(_PACKAGES) for _, whole in found):
        return
    names = dict(found)
    for _, whole in found:
        yield from makers_in(whole)
    used: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree):
        if path := dotted(node):
            first, _, rest = path.partition(".")
            whole = ".".join(filter(None, (names.get(first, first), rest)))
            used += ((node, maker) for maker in makers_in(whole))
    annotations = {id(node) for kind in types_in(tree) for node in ast.walk(kind)} if used else set()
    yield from (maker for node, maker in used if id(node) not in annotations)


def makers_in(whole: str) -> Iterator[str]:
    name = whole.rpartition(".")[2]
    for module, makers in MAKERS.items():
        if name in makers and whole.startswith(f"{module}."):
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


def types_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what only names a type: of an argument, of what is returned, of a variable."""
    for node in ast.walk(tree):
        for kind in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(kind, ast.AST):
                yield kind


PARSERS = {"parsedate_to_datetime", "parsedate", "parsedate_tz"}
RETRY_AFTER = {
    "ragtrace/http.py": "parses it",
    "collector/ragtrace_collector/web/tokens.py": "answers it",
}


def test_no_other_module_parses_retry_after() -> None:
    naming = {
        str(module.path.relative_to(ROOT))
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lower() in ("retry-after", "retry-after-ms")
    }
    assert naming == set(RETRY_AFTER)
    parsing = {module.name for module in modules() for _, name in imports_in(module.tree) if name in PARSERS}
    assert parsing == {"ragtrace.http"}
