"""Settings of commands: dataclasses whose fields carry options."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner, Result

from ragtrace.cli.settings import command, given_selection, group, option, takes


def _even(text: str) -> int:
    if int(text) % 2:
        raise ValueError("write an even number")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    token: str | None = option("--token", help="For the far end.", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    number: int = option("--number", parse=_even, default="2", selects=True, help="How many.")
    names: tuple[str, ...] = option("--name", multiple=True, help="Whose.")
    is_quiet: bool = option("--quiet", is_flag=True, help="Say nothing.")
    far: Credentials = group(Credentials)

    def __post_init__(self) -> None:
        if self.is_quiet and self.names:
            raise ValueError("--quiet goes without --name")


@command()
@click.argument("file")
@takes(wanted=("What is wanted", Wanted))
def try_it(file: str, wanted: Wanted) -> None:
    """Try it."""
    click.echo(f"{file} {wanted}")
    click.echo(list(given_selection(click.get_current_context())))


def run(*args: str) -> Result:
    return CliRunner().invoke(try_it, args)


def test_options_fill_the_fields_and_those_of_groups_and_no_secret_is_shown() -> None:
    said = run("x", "--number", "4", "--name", "a", "--token", "hush").output.splitlines()
    assert said[0].startswith("x Wanted(number=4, names=('a',), is_quiet=False,")
    assert said[1] == "[('--number', 4)]"
    assert "hush" not in said[0]


def test_defaults_are_parsed_and_select_nothing() -> None:
    said = run("x").output.splitlines()
    assert "number=2" in said[0]
    assert said[1] == "[]"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--number", "3"], "Invalid value for '--number': write an even number"),
        (["--quiet", "--name", "a"], "--quiet goes without --name"),
    ],
)
def test_what_is_wrong_names_the_option(args: list[str], says: str) -> None:
    result = run("x", *args)
    assert result.exit_code == 2
    assert says in result.output


def test_help_lists_the_section_before_the_other_options() -> None:
    lines = [" ".join(line.split()) for line in run("--help").output.splitlines()]
    assert lines.index("What is wanted:") < lines.index("--token TEXT For the far end.")
    assert lines.index("--token TEXT For the far end.") < lines.index("Options:")
