"""Structure that import contracts do not see: one home for HTTP clients, for `Retry-After` and for SQL."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT, modules

CLIENT = re.compile(
    r"\b(?:httpx2?\.(?:\w*Client|\w*Transport|get|post|put|patch|delete|head|request|stream)|\w*AsyncClient"
    r"|aiohttp\.\w+|(?<!\.)requests\.\w+|urllib3\.\w+|urlopen|build_opener|urlretrieve|HTTPS?Connection"
    r"|Async\w*OpenAI|(?:Azure)?OpenAI|(?:Async)?Anthropic|Default\w*Client|OTLP\w+Exporter)\("
)
"""What makes a client of HTTP, or is a subclass of one."""


def named(pattern: str | re.Pattern[str]) -> set[str]:
    """Return the files of the product that have the pattern."""
    texts = {str(module.path.relative_to(ROOT)): module.path.read_text("utf-8") for module in modules()}
    return {file for file, text in texts.items() if re.search(pattern, text)}


def test_one_module_makes_clients_of_http_and_sdks_make_their_own_of_what_it_says() -> None:
    assert named(CLIENT) == {"ragtrace/http.py", "ragtrace/judge/endpoint.py", "ragtrace/judge/anthropic.py"}
    renamed = (
        r"import (?:httpx2?|requests|aiohttp|openai|anthropic) as |from (?:httpx2?|requests|aiohttp) import"
    )
    assert named(renamed) == set()


def test_one_module_parses_retry_after() -> None:
    answers_it = "collector/ragtrace_collector/web/tokens.py"
    assert named(r'(?i)"retry-after(-ms)?"') == {"ragtrace/http.py", answers_it}
    assert named(r"\bparsedate\w*\(") == {"ragtrace/http.py"}


def test_nothing_reaches_into_the_http_server() -> None:
    """`uvicorn` itself is its public interface: what is below may change in any release."""
    assert named(r"(?:from|import) uvicorn\.") == set()


def test_one_door_opens_sqlite_files_and_no_statement_leaves_the_store() -> None:
    """Private mode, marks, migrations and errors are written once; the store's files are locked besides."""
    store = "collector/ragtrace_collector/store/"
    openers = {file for file in named(r"sqlite3\.connect\(") if not file.startswith(store)}
    assert openers == {"ragtrace/sql.py"}
    speakers = named(r"import (?:sqlite3|psycopg)|from (?:sqlite3|psycopg)")
    assert {
        file for file in speakers if file.startswith("collector/") and not file.startswith(store)
    } == set()
