"""The built wheel in a clean virtual environment, with what it declares and nothing else. No network."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from shutil import which

from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def build_wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def clean_environment(folder: Path, wheel: Path, *, extras: Iterable[str] = ()) -> Path:
    """Make an environment of the wheel and its dependencies, and return where its programs are.

    The dependencies are links to those of this environment: what the wheel does not declare is not there.
    """
    if which("uv"):
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    else:
        venv.create(folder, with_pip=True)
    install(folder / "bin", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    (metadata,) = site.glob("ragtrace_otel-*.dist-info")
    for each in _needed(Distribution.at(metadata), frozenset(extras), set()):
        link(each, site)
    return folder / "bin"


def install(programs: Path, *arguments: str) -> None:
    """Install what is on this machine, with uv if it is there, else with pip; no dependencies."""
    python = str(programs / "python")
    tool = ["uv", "pip", "install", "--python", python] if which("uv") else [python, "-m", "pip", "install"]
    offline = "--offline" if which("uv") else "--no-index"
    subprocess.run(
        [*tool, "--quiet", "--no-deps", offline, *arguments], check=True, capture_output=True, timeout=120
    )


def _needed(
    of: Distribution, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]
) -> Iterator[Distribution]:
    """Yield what a distribution requires with these extras, and what that requires."""
    for line in of.requires or ():
        requirement = Requirement(line)
        key = (requirement.name, frozenset(requirement.extras))
        if key not in seen and _applies(requirement, extras):
            seen.add(key)
            found = distribution(requirement.name)
            yield found
            yield from _needed(found, key[1], seen)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    if requirement.marker is None:
        return True
    environment: dict[str, str] = {**default_environment()}  # type: ignore[dict-item]
    return any(requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras | {""})


def link(found: Distribution, site: Path) -> None:
    """Link the files of what is installed here into the packages of another environment."""
    for file in found.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            if not (site / file).exists():
                (site / file).symlink_to(Path(str(found.locate_file(file))))
