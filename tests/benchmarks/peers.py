"""Other libraries that are measured in the same run: which interpreter has them, in which version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ragtrace.errors import InputError

PACKAGES: Final = (
    *("arize-phoenix", "deepeval", "langfuse", "logfire", "mlflow-tracing"),
    *("openinference-instrumentation", "ragas", "traceloop-sdk"),
)
_ASK: Final = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for package in sys.argv[1:]:
    try:
        found[package] = version(package)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The libraries that the interpreters of a run have."""

    python: Mapping[str, str] = field(default_factory=dict)
    """By package, the first interpreter that has it."""
    version: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pythons: Iterable[str]) -> Peers:
        """Ask interpreters what they have.

        Raises:
            InputError: one cannot be run.
        """
        python: dict[str, str] = {}
        version: dict[str, str] = {}
        for each in pythons:
            for package, its_version in _versions(each).items():
                if package not in python:
                    python[package], version[package] = each, its_version
        return cls(python=python, version=version)


def _versions(python: str) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _ASK, *PACKAGES], check=True, stdout=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise InputError(f"--peers-python {python}: this interpreter cannot be run: {exc}") from exc
    found: dict[str, str] = json.loads(done.stdout)
    return found
