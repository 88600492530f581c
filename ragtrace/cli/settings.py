"""Settings of commands: frozen dataclasses whose fields carry their options.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class SearchOptions:
        service: str | None = option("--service", metavar="NAME", help="Traces of this service.")

    @command()
    @takes(search=("What to read", SearchOptions))
    def find(search: SearchOptions) -> None: ...

A field may hold another such dataclass (`group`). A command shows the options of each section together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Final, TypeAlias

import click

Callback: TypeAlias = Callable[..., Any]

_OPTION: Final = "option"
_GROUP: Final = "group"


class SettingOption(click.Option):
    """An option that fills a field of a settings dataclass."""

    def __init__(self, *args: Any, section: str, selects: bool, configures: bool, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section
        """The title it is listed under in ``--help``."""
        self.selects = selects
        """Whether it says which answers are judged: reports name it."""
        self.configures = configures
        """Whether a configuration says the same."""


class SettingsCommand(click.Command):
    """A command whose ``--help`` lists the options of each section together."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, then the options that belong to none."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sorted(sections.items(), key=lambda section: section[0] == "Options"):
            with formatter.section(title):
                formatter.write_dl(records)


def command() -> Callable[[Callback], click.Command]:
    """Make a function a command."""
    return click.command(cls=SettingsCommand)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    names: tuple[str, ...]
    parse: Callable[[Any], Any] | None
    attributes: Mapping[str, Any]


def option(
    *names: str,
    default: Any = None,
    parse: Callable[[Any], Any] | None = None,
    selects: bool = False,
    configures: bool = False,
    secret: bool = False,
    **attributes: Any,
) -> Any:
    """Declare a field that an option fills; ``attributes`` are click's.

    ``parse`` turns what was typed into the value; its ValueError becomes an error that names the option.
    """
    if attributes.get("is_flag") and default is None:
        default = False
    if attributes.get("multiple") and default is None:
        default = ()
    if not attributes.get("required"):  # click takes any default for an answer
        attributes["default"] = default
    attributes |= {"selects": selects, "configures": configures}
    declared = _Option(names=names, parse=parse, attributes=attributes)
    if parse is not None and default is not None:  # only the command line has the form that is parsed
        return field(metadata={_OPTION: declared}, repr=not secret)
    return field(default=default, metadata={_OPTION: declared}, repr=not secret)


def group(kind: type) -> Any:
    """Declare a field that holds another settings dataclass."""
    return field(metadata={_GROUP: kind})


def takes(**sections: tuple[str, type] | type) -> Callable[[Callback], Callback]:
    """Add the options of settings dataclasses to a command, which gets the dataclasses by these names.

    A title is that of their section in ``--help``.
    """
    wanted = {name: each if isinstance(each, tuple) else ("Options", each) for name, each in sections.items()}

    def add_options(callback: Callback) -> Callback:
        @wraps(callback)
        def with_settings(**values: Any) -> Any:
            built = {name: _build(kind, name, values) for name, (_, kind) in wanted.items()}
            return callback(**built, **values)

        decorated: Callback = with_settings
        options = [each for name, (title, kind) in wanted.items() for each in _options(kind, name, title)]
        for add in reversed(options):
            decorated = add(decorated)
        return decorated

    return add_options


def given_selection(context: click.Context) -> Iterator[tuple[str, Any]]:
    """Yield the options that were given to choose answers, as they are written, with their values."""
    for parameter in _given(context):
        if parameter.selects:
            yield parameter.opts[0], context.params[parameter.name or ""]


def given_beside_configuration(context: click.Context) -> tuple[str, ...]:
    """Return the options that were given and whose settings a configuration has, as they are written."""
    return tuple(parameter.opts[0] for parameter in _given(context) if parameter.configures)


def _given(context: click.Context) -> Iterator[SettingOption]:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if isinstance(parameter, SettingOption) and source is click.core.ParameterSource.COMMANDLINE:
            yield parameter


def _options(kind: type, path: str, title: str) -> Iterator[Callable[[Callback], Callback]]:
    for each in fields(kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            yield from _options(each.metadata[_GROUP], name, title)
        elif _OPTION in each.metadata:
            declared: _Option = each.metadata[_OPTION]
            parse = _parsing(declared.parse) if declared.parse else None
            attributes = {"cls": SettingOption, "section": title, "callback": parse, **declared.attributes}
            yield click.option(*declared.names, name, **attributes)


def _parsing(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc

    return callback


def _build(kind: type, path: str, values: dict[str, Any]) -> Any:
    """Make the dataclass of what was parsed, which it takes out of ``values``."""
    built: dict[str, Any] = {}
    for each in fields(kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            built[each.name] = _build(each.metadata[_GROUP], name, values)
        elif _OPTION in each.metadata:
            built[each.name] = values.pop(name)
    try:
        return kind(**built)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
