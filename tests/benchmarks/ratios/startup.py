"""What it takes to start: every command's ``--help``, and an application that calls ``instrument()``.

Processor time of the process, user and system. Of some tries in each round the least counts: others can only
add to it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from ragtrace.cli.app import COMMANDS
from tests.benchmarks.recording import Measurement, versions_of

ROUNDS: Final = 7
TRIES: Final = 2
CLICK: Final = "python -c 'import click'"
BARE: Final = "python -c pass"
SDK: Final = "the bare SDK with OTLP/HTTP"
PROGRAM: Final = "from ragtrace.cli import main; main()"
SDK_CODE: Final = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
"""
ALTERNATIVES: Final = {CLICK: ("import click", ()), BARE: ("pass", ()), SDK: (SDK_CODE, ())}


def measure() -> list[Measurement]:
    """Measure every command and the door of the library, each beside the least that could do it."""
    cases = _cases()
    programs = {**ALTERNATIVES, **{what: program for what, (program, _) in cases.items()}}
    for code, arguments in programs.values():
        _cpu_s(code, arguments)  # writes the bytecode of what it imports
    rounds = [
        {
            name: min(_cpu_s(code, arguments) for _ in range(TRIES))
            for name, (code, arguments) in programs.items()
        }
        for _ in range(ROUNDS)
    ]
    versions = {CLICK: versions_of(["click"]), BARE: {}, SDK: versions_of(["opentelemetry-sdk"])}
    return [
        Measurement(
            what=f"{what}, CPU",
            alternative=alternative,
            ratios=tuple(found[what] / found[alternative] for found in rounds),
            versions=versions[alternative],
        )
        for what, (_, alternative) in cases.items()
    ]


def _cases() -> Mapping[str, tuple[tuple[str, tuple[str, ...]], str]]:
    commands = [("--version",), ("--help",), *((name, "--help") for name in COMMANDS)]
    wrong = ("evaluate", "--no-such-option")
    instrument = (
        "import ragtrace; ragtrace.instrument(endpoint='http://127.0.0.1:1', protocol='http/protobuf')"
    )
    return {
        **{" ".join(("ragtrace", *words)): ((PROGRAM, words), CLICK) for words in (*commands, wrong)},
        "import ragtrace": (("import ragtrace", ()), BARE),
        "import ragtrace; instrument()": ((instrument, ()), SDK),
    }


def _cpu_s(code: str, arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
