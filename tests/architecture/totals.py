"""How large the project is: ``python -m tests.architecture.totals [--json] [--root CHECKOUT]``.

It reads files only, so that it counts any checkout. Nested settings are followed by reference in the schema.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("ragtrace", "collector/ragtrace_collector")
SHIPPED: Final = {".html", ".css", ".js", ".json", ".yaml", ".yml", ".toml", ".ftl", ".md", ".txt", ".sql"}
GENERATED: Final = {
    "cli.md",
    "compatibility.md",
    "judge-cards.md",
    "performance.md",
    "reading.md",
    "signals.md",
}
_OPTION: Final = re.compile(r'"(--[a-z][a-z0-9-]*)')
_WORD: Final = re.compile(r"\S+")
_BETWEEN: Final = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def totals(root: Path = ROOT) -> dict[str, Any]:
    """Count a checkout: lines of the product by package, and sums over all of it."""
    packages: dict[str, Counter[str]] = {}
    names = protocols = 0
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            inside = path.relative_to(root / package).parts
            name = f"{package}/{inside[0]}" if len(inside) > 1 else package
            tree, text = _parsed(path)
            packages.setdefault(name, Counter()).update(_lines(tree, text), files=1)
            names += len(_public_names(tree))
            protocols += sum(_is_protocol(node) for node in tree.body)
    product = sum(packages.values(), Counter())
    docs = {path.relative_to(root).as_posix(): _words(path) for path in sorted((root / "docs").rglob("*.md"))}
    written = {
        name: words
        for name, words in docs.items()
        if not name.startswith("docs/adr/") and Path(name).name not in GENERATED
    }
    return {
        "packages": {name: dict(counted) for name, counted in sorted(packages.items())},
        **{name: product[name] for name in ("code", "docstring", "comment", "blank", "files")},
        "shipped": sum(_count(path) for path in _shipped(root)),
        "tests": sum(_count(path) for path in (root / "tests").rglob("*.py")),
        "words_of_docs": sum(written.values())
        + _words(root / "README.md")
        + _words(root / "CONTRIBUTING.md"),
        "words_of_changelog": _words(root / "CHANGELOG.md"),
        "settings": _settings(json.loads((root / "collector/collector.schema.json").read_text("utf-8"))),
        **_commands(root),
        "public_names": names,
        "protocols": protocols,
    }


def _parsed(path: Path) -> tuple[ast.Module, str]:
    text = path.read_text("utf-8")
    return ast.parse(text), text


def _lines(tree: ast.Module, text: str) -> dict[str, int]:
    """Give each line one kind; a line of code with a comment behind it is code."""
    docstrings = {
        line
        for node in ast.walk(tree)
        for body in (getattr(node, "body", None),)
        if isinstance(body, list)
        for each in body
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
        for line in range(each.lineno, (each.end_lineno or 0) + 1)
    }
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _BETWEEN:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    comments -= code | docstrings
    blank = len(text.splitlines()) - len(code | docstrings | comments)
    return {"code": len(code), "docstring": len(docstrings), "comment": len(comments), "blank": blank}


def _public_names(tree: ast.Module) -> list[str]:
    return [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    ]


def _is_protocol(node: ast.AST) -> bool:
    """Say whether a class is a port; `asyncio.Protocol` is none."""
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return any(base.partition("[")[0] in ("Protocol", "typing.Protocol") for base in bases)


def _shipped(root: Path) -> set[Path]:
    """Return what wheels have besides Python; a file that links lead to is one file."""
    return {
        path.resolve()
        for package in PACKAGES
        for folder in ((root / package), *(each for each in (root / package).rglob("*") if each.is_symlink()))
        for path in (folder.rglob("*") if folder.is_dir() else (folder,))
        if path.is_file() and path.suffix in SHIPPED
    }


def _count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _words(path: Path) -> int:
    """Count words, without the tables that are made from the code."""
    text = path.read_text("utf-8") if path.exists() else ""
    return len(_WORD.findall(re.sub("<!-- carrier table.*?<!-- end -->", "", text, flags=re.DOTALL)))


def _settings(schema: dict[str, Any]) -> int:
    """Count the keys of the configuration that hold a value and no section, each by its path."""
    definitions = schema.get("$defs", {})

    def sections(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "$ref" in node:
            node = definitions[node["$ref"].rpartition("/")[2]]
        if "properties" in node:
            yield node
        for each in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
            yield from sections(each)
        if isinstance(node.get("items"), dict):
            yield from sections(node["items"])

    def keys(node: dict[str, Any], path: str) -> Iterator[str]:
        for name, each in node["properties"].items():
            inner = list(sections(each))
            if not inner:
                yield f"{path}.{name}"
            for section in inner:
                yield from keys(section, f"{path}.{name}")

    return len({key for section in sections(schema) for key in keys(section, "")})


def _commands(root: Path) -> dict[str, int]:
    """Count commands on their generated page, and names of options in the source of the commands."""
    page = (root / "docs/cli.md").read_text("utf-8")
    sources = (path for package in PACKAGES for path in (root / package / "cli").rglob("*.py"))
    options = {name for path in sources for name in _OPTION.findall(path.read_text("utf-8"))}
    return {
        "commands": len(re.findall(r"^## ragtrace [a-z-]+$", page, re.MULTILINE)),
        "options": len(options),
    }


def _print(counted: dict[str, Any], *, whole: bool) -> None:
    packages = counted.pop("packages")
    if whole:
        for name, lines in packages.items():
            print(f"{name:48}", *(f"{lines.get(kind, 0):>6} {kind}" for kind in _KINDS))
    print("totals:", ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counted.items()))


_KINDS: Final = ("code", "docstring", "comment", "blank", "files")


def main() -> None:
    """Count, and print a line for each package and one for all."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.totals", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--brief", action="store_true", help="print the last line only")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="another checkout")
    options = parser.parse_args()
    counted = totals(options.root)
    if options.json:
        print(json.dumps(counted, indent=2))
    else:
        _print(counted, whole=not options.brief)


if __name__ == "__main__":
    main()
