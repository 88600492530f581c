"""Public names, and what import contracts do not see: one home for clients of HTTP and for SQL."""

from __future__ import annotations

import ast
import re
from importlib import import_module

from tests.architecture.source import ROOT, imports_in, modules
from tests.docs.blocks import BLOCKS

PUBLIC = {
    "ragtrace": (
        "Chunk ContentPolicy Evaluation RagRecord RagtraceError __version__ current evaluate evaluate_records"
        " evaluate_sync feedback flush generation instrument rag retrieval statistics"
        " uninstrument update"
    ),
    "ragtrace.backends": "MemorySink",
    "ragtrace.capture.privacy.policy": "ContentFilter",
    "ragtrace.errors": (
        "ConfigError InputError JudgeError JudgeNonsense JudgeRefused JudgeTimeout JudgeUnable"
        " JudgeUnavailable SendError"
    ),
    "ragtrace.judge": "JudgeSettings JudgeSpec open_judge",
    "ragtrace.metrics": "StepLimits StepSession metric_named",
    "ragtrace.metrics.fence": "fence_code fenced",
    "ragtrace.sentences": "Sentence split_sentences",
    "ragtrace.model": (
        "Chunk ChunkVerdict Claim Direction EarlierTurn Evaluation JudgeIdentity MetricFailure MetricResult"
        " Part RagRecord SkipReason Usage Verdict VerdictLabel"
    ),
    "ragtrace.pipeline": "Evaluator EvaluatorSpec MetricSpec VerifySpec",
    "ragtrace.ports": (
        "Embedder Embeddings FreeText Judge JudgeReply JudgeRequest Metric SpanSink YesProbability"
    ),
    "ragtrace.stats": "Weighed weighted_mean",
    "ragtrace.testing": ("Script ScriptedJudge assert_metrics check_embedder check_judge check_metric"),
}
"""What applications, plug-ins and their tests import. Everything else may change in any release."""


def test_the_public_names_are_these() -> None:
    assert {m.name: " ".join(m.public_names) for m in modules() if m.public_names} == PUBLIC


def test_every_public_name_loads_and_says_what_it_is() -> None:
    for module, names in PUBLIC.items():
        for name in names.split():
            value = getattr(import_module(module), name)
            assert isinstance(value, str) or value.__doc__, f"{module}.{name}"


def test_documents_and_examples_import_public_names_only() -> None:
    texts = {block.id: block.text for block in BLOCKS if block.is_python}
    texts |= {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in ROOT.glob("examples/**/*.py")}
    imported = {
        (where, module, name)
        for where, text in texts.items()
        for module, name in imports_in(_parsed(text))
        if module.partition(".")[0] in ("ragtrace", "ragtrace_collector") and name
    }
    assert len(imported) > 20
    assert [each for each in imported if each[2] not in PUBLIC.get(each[1], "").split()] == []


def test_a_private_module_is_imported_inside_its_package_only() -> None:
    """``a.b._c`` is private to ``a.b``, with the packages inside it."""
    known = {module.name for module in modules()}
    for module in modules():
        for source, name in imports_in(module.tree):
            target = f"{source}.{name}" if f"{source}.{name}" in known else source
            owner = re.match(r"(ragtrace[^_]*)\._", target)
            assert not owner or f"{module.name}.".startswith(f"{owner[1]}."), (
                f"{module.name} imports {target}"
            )


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:  # a block that shows a part of a file
        return ast.Module([], [])


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
    assert named(CLIENT) == {"ragtrace/http.py", "ragtrace/judge/endpoint.py"}
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
