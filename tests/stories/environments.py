"""The virtual environments that the stories' readers have: made of the built wheel, as they would make them.

    python -m tests.stories

makes all of them, in a cache outside the checkout. What is installed is pinned by the project's locks. If
ragtrace's code changed, its wheel alone is installed again.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.wheel import build_wheel

__all__ = ["ENVIRONMENTS", "Environment", "install", "is_made", "wheel"]

ROOT = Path(__file__).parents[2]
_PIP = ("--quiet", "--no-compile", "--prefer-binary", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a reader installs: ``.`` is ragtrace, as in a checkout, ``.[openai]`` ragtrace with an extra."""

    name: str
    requirements: tuple[str, ...]

    @property
    def command(self) -> str:
        """How a reader installs it."""
        quoted = (f"'{each}'" if "[" in each else each for each in self.requirements)
        return f"pip install {' '.join(quoted)}"

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        return _cache() / self.name

    @property
    def bin(self) -> Path:
        """Where its programs are."""
        return self.folder / "bin"


_LLAMA_INDEX = ("llama-index-core", "llama-index-llms-openai", "llama-index-embeddings-openai")
_LANGCHAIN = ("langchain", "langchain-openai", "numpy")
_OPENINFERENCE = ("opentelemetry-sdk", "opentelemetry-exporter-otlp", *_LANGCHAIN)
ENVIRONMENTS: Mapping[str, Environment] = {
    name: Environment(name=name, requirements=requirements)
    for name, requirements in {
        "plain": (".",),
        "openai": (".[openai]", "openai"),
        "langchain": (".[langchain]", *_LANGCHAIN),
        "llama-index": (".[llama-index]", *_LLAMA_INDEX),
        "haystack": (".[haystack]", "haystack-ai"),
        "zero-code": ("opentelemetry-distro", ".[openai]", "openai"),
        "no-instrumentor": (".", "openai"),
        "openinference": ("openinference-instrumentation-langchain", *_OPENINFERENCE),
        "openllmetry": ("traceloop-sdk", "openai"),
        "fastapi": (".[examples]",),
        "collector": (".[collector]",),
    }.items()
}


def is_made(environment: Environment) -> bool:
    """Tell whether what it needs of others is installed as the locks say."""
    return _noted(environment, "made-of") == _needs(environment)


def install(environment: Environment) -> None:
    """Make the environment unless it is there, and put this checkout's ragtrace into it."""
    with (_cache() / f"{environment.name}.lock").open("w") as lock:  # other workers and runs wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        digest = hashlib.sha256(wheel().read_bytes()).hexdigest()
        if not is_made(environment):
            _make(environment)
        elif _has_ragtrace(environment) and _noted(environment, "made-of-wheel") != digest:
            again = "--reinstall-package=ragtrace-otel" if shutil.which("uv") else "--force-reinstall"
            _pip(environment, "--no-deps", again, wheel())
        (environment.folder / "made-of-wheel").write_text(digest)
        (environment.folder / "made-of").write_text(_needs(environment))


def _make(environment: Environment) -> None:
    (environment.folder / "made-of").unlink(missing_ok=True)
    constraints = _cache() / f"{environment.name}.txt"
    constraints.write_text("\n".join(_pins(environment)))
    if shutil.which("uv"):
        _run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, environment.folder)
    else:
        _run(sys.executable, "-m", "venv", "--clear", environment.folder)
    of_wheel = rf"ragtrace-otel\1 @ {wheel().as_uri()}"
    wanted = [re.sub(r"^\.(\[.*\])?$", of_wheel, each) for each in environment.requirements]
    _pip(environment, "--constraint", constraints, *wanted)


def _pip(environment: Environment, *arguments: str | Path) -> None:
    if shutil.which("uv"):
        _run("uv", "pip", "install", "--quiet", "--python", environment.bin / "python", *arguments)
    else:
        _run(environment.bin / "python", "-m", "pip", "install", *_PIP, *arguments)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=600)


@cache
def wheel() -> Path:
    """Build the wheel, once in a process; the same code gives the same bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ragtrace-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_wheel(folder)


def _has_ragtrace(environment: Environment) -> bool:
    return any(each.startswith(".") for each in environment.requirements)


def _noted(environment: Environment, name: str) -> str:
    stamp = environment.folder / name
    return stamp.read_text() if stamp.exists() else ""


def _needs(environment: Environment) -> str:
    """Return a digest of all that decides what is installed beside ragtrace itself."""
    of_ragtrace = _metadata() if _has_ragtrace(environment) else []
    lines = [sys.version, *environment.requirements, *_pins(environment), *of_ragtrace]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _metadata() -> Sequence[str]:
    with zipfile.ZipFile(wheel()) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    return [line for line in lines if line.startswith(("Requires-Dist", "Provides-Extra"))]


def _pins(environment: Environment) -> Iterator[str]:
    """Yield the lock's versions without their hashes: a wheel of our own has none."""
    lock = "development" if environment.name in ("fastapi", "collector") else "frameworks"
    for line in (ROOT / "locks" / f"{lock}.txt").read_text("utf-8").splitlines():
        if re.match(r"[a-zA-Z0-9]", line):
            yield line.removesuffix("\\").strip()


@cache
def _cache() -> Path:
    """Each checkout has a folder of its own: what is in it is of its code."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    of_checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    folder = caches / "ragtrace" / "stories" / of_checkout
    folder.mkdir(parents=True, exist_ok=True)
    return folder
