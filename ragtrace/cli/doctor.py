"""The command `ragtrace doctor`: its options and its help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ragtrace.cli.options import JsonOption, JudgeOptions, command, group, option, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What is checked."""

    judge: JudgeOptions = group(JudgeOptions)
    endpoints: tuple[str, ...] = option(
        "--to", multiple=True, metavar="ENDPOINT", help="Check this OTLP endpoint. Repeatable."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationOptions:
    """Which application is run instead."""

    app: str | None = option(
        "--app",
        metavar="COMMAND",
        help="Run this application, and show what is captured from it and whether it can be judged.",
    )
    show_content: bool = option(
        "--show-content", is_flag=True, help="Show the texts, not only their lengths."
    )

    def __post_init__(self) -> None:
        """Refuse options of an application without one."""
        if self.app is None and self.show_content:
            raise click.UsageError("--show-content needs --app")


@command()
@takes(
    targets=("What to check", TargetOptions),
    application=("Run an application", ApplicationOptions),
    output=("What to write", JsonOption),
)
def doctor(targets: TargetOptions, application: ApplicationOptions, output: JsonOption) -> None:
    """Check that the judge answers, that endpoints take spans, and that the store can be used.

    The judge gets one test sentence; a language model is also asked for log-probabilities and embeddings.
    Endpoints get an export without spans; topics of Kafka must be there, and delete what is old. If a
    collector read nothing in traces that hold text, their attributes are listed, with a mapping to paste. The
    checks change nothing and show no key. Exit code 1 if a check fails.

    --app runs an application and receives its spans in place of the collector, wherever it would send them.
    It judges nothing, and needs neither judge nor key. Send a server some requests, then stop it with
    Ctrl-C. Exit code 0 if a RAG call was captured that can be judged, else 1.

    \b
    Examples:
      ragtrace doctor
      ragtrace doctor --config collector.yaml
      ragtrace doctor --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace doctor --to http://tempo:4318 --json
      ragtrace doctor --app 'python app.py'
      ragtrace doctor --app 'uvicorn app:app' --show-content
    """
    if application.app is not None and (targets.judge.config.path is not None or targets.endpoints):
        raise click.UsageError("--app checks nothing else: leave out --config and --to")
    from ragtrace.cli.doctor_run import check_application, check_targets

    if application.app is not None:
        is_fine = check_application(application, as_json=output.wanted)
    else:
        is_fine = check_targets(targets, as_json=output.wanted)
    click.get_current_context().exit(0 if is_fine else 1)
