"""The field's words: the project's old private words stand in no code, message or document.

`docs/glossary.md` has the words that took their place.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

BANNED = {
    "attempt failure, retry class": r"mend(s|ed|ing)?",
    "back-off, time-out": r"patience",
    "budget": r"purses?",
    "budget guard": r"(the|that|this|a) wall(s)?|behind the wall",
    "canary claim": r"sentinels?|planted( claims?)?",
    "connections": r"crowds?",
    "cost estimate": r"tariffs?|turnstiles?",
    "dry run": r"rehears\w*",
    "encrypt, decrypt": r"(un)?seal(s|ed|ing)?",
    "export switch": r"outlets?",
    "follow-up sampling, related answers": r"neighbours?|lingering|bring(s|ing)? back|brought back",
    "HTTP sender": r"posters?",
    "live configuration": r"in force|tenure",
    "outbox item": r"parcels?",
    "process, decide (a trace)": r"settlers?|settling",
    "prompt injection": r"talked round",
    "receiver authentication": r"the gate|at the door",
    "recover": r"salvag\w+|upkeep",
    "relation": r"bonds?",
    "retry policy": r"ladders?|rungs?",
    "submitted": r"entrusted",
    "other tools": r"peer's|peers'|other peers",
    "unauthenticated, plug-in": r"strangers?",
    "workers": r"crews?|hands",
    "is": r"stands",
    "so that, of it": r"lest|thereof|whence",
    "American spelling": (
        r"labell(ed|ing)|neighbour\w*|colour\w*|behaviour\w*|favour\w*|honour\w*|\w+ogue|judgement|recognis\w*|\w+alys(ed|ing)"
        r"|initialis\w*|normalis\w*|serialis\w*|summaris\w*|centre|grey|artefact\w*|licence"
    ),
}
WORDS = {
    word: re.compile(rf"(?<![a-zA-Z])({pattern})(?![a-zA-Z])", re.IGNORECASE)
    for word, pattern in BANNED.items()
}
ANY = re.compile(rf"(?<![a-zA-Z])({'|'.join(BANNED.values())})(?![a-zA-Z])", re.IGNORECASE)
"""Searched first: few lines have any."""
KEPT = re.compile(
    "|".join(
        (
            # configuration keys, flags and what stores, pages and metrics call it
            r"sample\.neighbours|`neighbours`|\bneighbours:|\.neighbours\b|\"neighbours\"",
            r"sentinel_rate|sentinels_passed|--sentinel-rate|linger_s|--salvage|options\.salvage",
            r"\bsalvage: bool",
            r"--patience|patience_s|tests\.patience|PATIENCE_S|peer[_-]prompts|--peers-python|\"peer_\w+\"",
            r"parcels_\w+|\"parcels\"|\"purse\"|settled_\w+|texts_mended|\w*brought_back\w*",
            r"\"neighbour\w*\"|`neighbour`",
            # a connection's peer, and names of tests
            r"\btest_\w+|what gRPC calls a peer|dialogue|catalogue|analogue|prologue|epilogue",
        )
    )
)
SCHEMA = re.compile(
    r"\b(_STANDS|(un)?sealed|sealing_key|parcel\w*|purse|stands|lingering\w*|(whose|what) neighbours)\b",
    re.IGNORECASE,
)
"""What the work store's schema calls things: it stays."""
FILES = [
    Path(name)
    for name in subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml", "*.toml", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if not name.startswith(("tests/", "examples/data/"))
    and name
    not in (
        "CHANGELOG.md",
        "docs/glossary.md",
        "docs/adr/0014-one-language-one-tree.md",
        "ragtrace/_moved_names.py",
    )
    and not re.search(
        r"metrics/prompts/|_prompts\.py$|compat/(_material|ragas_legacy)\.py$|invented_claims\.py$|phrases\.py$",
        name,
    )
]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_words_are_those_of_the_field(file: Path) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert list(_found(SCHEMA.sub(" ", text) if file.parent.name == "store" else text)) == []


def _found(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not ANY.search(line):
            continue
        rest = KEPT.sub(" ", line)
        for word, pattern in WORDS.items():
            if found := pattern.search(rest):
                yield f"{number}: {found[0]!r}, say {word!r}: {line.strip()[:120]}"
