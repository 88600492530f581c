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
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.patience import PATIENCE_S

__all__ = ["ENVIRONMENTS", "Environment", "install", "is_made", "wheel"]

ROOT = Path(__file__).parents[2]
OF_FRAMEWORKS = "locks/frameworks.txt"
OF_THE_PROJECT = "locks/development.txt"
_PIP = ("--quiet", "--no-compile", "--prefer-binary", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a reader installs: ``.`` is ragtrace, as in a checkout, ``.[openai]`` ragtrace with an extra."""

    name: str
    requirements: tuple[str, ...]
    lock: str = OF_FRAMEWORKS

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


ENVIRONMENTS: Mapping[str, Environment] = {
    name: Environment(name=name, requirements=requirements, lock=lock)
    for name, requirements, lock in (
        ("plain", (".",), OF_FRAMEWORKS),
        ("openai", (".[openai]", "openai"), OF_FRAMEWORKS),
        ("langchain", (".[langchain]", "langchain", "langchain-openai", "numpy"), OF_FRAMEWORKS),
        (
            "llama-index",
            (
                ".[llama-index]",
                "llama-index-core",
                "llama-index-llms-openai",
                "llama-index-embeddings-openai",
            ),
            OF_FRAMEWORKS,
        ),
        ("haystack", (".[haystack]", "haystack-ai"), OF_FRAMEWORKS),
        ("zero-code", ("opentelemetry-distro", ".[openai]", "openai"), OF_FRAMEWORKS),
        ("no-instrumentor", (".", "openai"), OF_FRAMEWORKS),
        (
            "openinference",
            (
                "openinference-instrumentation-langchain",
                "opentelemetry-sdk",
                "opentelemetry-exporter-otlp",
                "langchain",
                "langchain-openai",
                "numpy",
            ),
            OF_FRAMEWORKS,
        ),
        ("openllmetry", ("traceloop-sdk", "openai"), OF_FRAMEWORKS),
        ("fastapi", (".[examples]",), OF_THE_PROJECT),
        ("collector", (".[collector]",), OF_THE_PROJECT),
    )
}


def is_made(environment: Environment) -> bool:
    """Tell whether what it needs of others is installed as the locks say."""
    return _stamp(environment).exists() and _stamp(environment).read_text() == _needs(environment)


def install(environment: Environment) -> None:
    """Make the environment unless it is there, and put this checkout's ragtrace into it."""
    with _locked(environment):
        if not is_made(environment):
            _make(environment)
        if _has_ragtrace(environment):
            _renew(environment)


def _make(environment: Environment) -> None:
    _stamp(environment).unlink(missing_ok=True)
    constraints = _cache() / f"{environment.name}.txt"
    constraints.write_text("\n".join(_pins(environment.lock)))
    if shutil.which("uv"):
        _run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, environment.folder)
    else:
        _run(sys.executable, "-m", "venv", "--clear", environment.folder)
    _pip(environment, "--constraint", constraints, *(_of_wheel(each) for each in environment.requirements))
    _wheel_stamp(environment).write_text(_digest(wheel()))
    _stamp(environment).write_text(_needs(environment))


def _renew(environment: Environment) -> None:
    """Put the wheel in again if it is another one: what it needs is there."""
    if _wheel_stamp(environment).read_text() != _digest(wheel()):
        again = "--reinstall-package=ragtrace-otel" if shutil.which("uv") else "--force-reinstall"
        _pip(environment, "--no-deps", again, wheel())
        _wheel_stamp(environment).write_text(_digest(wheel()))


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
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    (built,) = folder.glob("*.whl")
    return built


def _of_wheel(requirement: str) -> str:
    return re.sub(r"^\.(\[.*\])?$", rf"ragtrace-otel\1 @ {wheel().as_uri()}", requirement)


def _has_ragtrace(environment: Environment) -> bool:
    return any(each.startswith(".") for each in environment.requirements)


def _needs(environment: Environment) -> str:
    """Return a digest of all that decides what is installed beside ragtrace itself."""
    of_ragtrace = _metadata(wheel()) if _has_ragtrace(environment) else []
    lines = [sys.version, *environment.requirements, *_pins(environment.lock), *of_ragtrace]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _metadata(built: Path) -> Sequence[str]:
    with zipfile.ZipFile(built) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    return [line for line in lines if line.startswith(("Requires-Dist", "Provides-Extra"))]


def _pins(lock: str) -> Iterator[str]:
    """Yield the lock's versions without their hashes: a wheel of our own has none."""
    for line in (ROOT / lock).read_text("utf-8").splitlines():
        if re.match(r"[a-zA-Z0-9]", line):
            yield line.removesuffix("\\").strip()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _stamp(environment: Environment) -> Path:
    return environment.folder / "made-of"


def _wheel_stamp(environment: Environment) -> Path:
    return environment.folder / "made-of-wheel"


@contextmanager
def _locked(environment: Environment) -> Iterator[None]:
    """Keep the workers of a test run, and other runs, from making the same at once."""
    with (_cache() / f"{environment.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _cache() -> Path:
    """Each checkout has a folder of its own: what is in it is of its code."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    of_checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    folder = caches / "ragtrace" / "stories" / of_checkout
    folder.mkdir(parents=True, exist_ok=True)
    return folder
