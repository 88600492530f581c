"""Measure what `pip install .` costs in an empty environment: packages, MB and seconds.

    python -m tests.benchmarks.install [REVISION ...] [--tool uv|pip] [--extra collector] [--swap 'OLD=>NEW']

A row a REVISION of this checkout; ``.`` is the checkout itself, and the default. Each is installed with an
empty cache, in turns, so that the seconds are those of a first install, with the build and what comes over
the network: medians of the rounds. MB are those of the packages with their bytecode, without pip.
``--swap`` adds a row: the last revision with another line of dependencies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.measured import table

ROOT = Path(__file__).parents[2]
NOT_OURS = ("pip", "setuptools", "_distutils_hack", "distutils-precedence", "_virtualenv")


class Installed(NamedTuple):
    """What one install cost."""

    packages: int
    mb: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="*", default=["."], metavar="REVISION")
    parser.add_argument("--tool", choices=("uv", "pip"), default="uv" if shutil.which("uv") else "pip")
    parser.add_argument("--extra", default="", metavar="NAME")
    parser.add_argument("--swap", default="", metavar="OLD=>NEW", help="both as in pyproject.toml")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = dict(_sources(Path(folder), options.revisions, options.swap))
        found: dict[str, list[Installed]] = {name: [] for name in sources}
        for _ in range(options.rounds):
            for name, source in sources.items():
                found[name].append(_install(source, options.tool, options.extra))
    print(table([_row(name, each) for name, each in found.items()]))


def _sources(folder: Path, revisions: Sequence[str], swap: str) -> Iterator[tuple[str, Path]]:
    for number, revision in enumerate(revisions):
        yield revision, _copy(revision, folder / f"{number}")
    if swap:
        old, _, new = swap.partition("=>")
        source = _copy(revisions[-1], folder / "swapped")
        project = source / "pyproject.toml"
        text = project.read_text("utf-8")
        if f'"{old}"' not in text:
            raise SystemExit(f"--swap: {old!r} is no dependency of {revisions[-1]}")
        project.write_text(text.replace(f'"{old}"', f'"{new}"', 1))
        yield f"{revisions[-1]}, {new} for {old}", source


def _copy(revision: str, to: Path) -> Path:
    to.mkdir()
    git = ["git", "-C", str(ROOT)]
    if revision == ".":
        listed = subprocess.run(
            [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            stdout=subprocess.PIPE,
        )
        pack = ["tar", "--create", "--directory", str(ROOT), "--null", "--files-from=-"]
        packed = subprocess.run(pack, check=True, input=listed.stdout, stdout=subprocess.PIPE)
    else:
        packed = subprocess.run([*git, "archive", revision], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "--extract", "--directory", str(to)], check=True, input=packed.stdout)
    return to


def _install(source: Path, tool: str, extra: str) -> Installed:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        python = str(venv / "bin" / "python")
        what = f"{source}[{extra}]" if extra else str(source)
        if tool == "uv":
            make = ["uv", "venv", "--quiet", "--python", sys.executable, str(venv)]
            install = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python, what]
        else:
            make = [sys.executable, "-m", "venv", str(venv)]
            install = [python, "-m", "pip", "install", "--quiet", what]
        env = {**os.environ, **_empty_caches(Path(folder))}
        subprocess.run(make, check=True, env=env)
        started = time.perf_counter()
        subprocess.run(install, check=True, env=env)
        seconds = time.perf_counter() - started
        (site,) = venv.glob("lib/python*/site-packages")
        return Installed(packages=_packages(site), mb=_mb(site), seconds=seconds)


def _empty_caches(folder: Path) -> Mapping[str, str]:
    return {"UV_CACHE_DIR": str(folder / "uv"), "PIP_CACHE_DIR": str(folder / "pip")}


def _packages(site: Path) -> int:
    return sum(each.metadata["Name"] not in NOT_OURS for each in distributions(path=[str(site)]))


def _mb(site: Path) -> float:
    files = (file for top in site.iterdir() if not top.name.startswith(NOT_OURS) for file in _files(top))
    return sum(file.stat().st_size for file in files) / 1e6


def _files(top: Path) -> Iterator[Path]:
    yield from (file for file in (top.rglob("*") if top.is_dir() else [top]) if file.is_file())


def _row(name: str, found: Sequence[Installed]) -> dict[str, object]:
    return {
        "revision": name,
        "packages": found[0].packages,
        "MB": found[0].mb,
        "seconds": median(each.seconds for each in found),
    }


if __name__ == "__main__":
    main()
