"""Settings of commands: frozen dataclasses whose fields carry their options.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class SearchOptions:
        service: str | None = option("--service", metavar="NAME", help="Traces of this service.")

    @command()
    @takes(search=section("What to read", SearchOptions))
    def find(search: SearchOptions) -> None: ...

A field may hold another such dataclass (`group`). A command shows the options of each section together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Final, TypeAlias

import click

Callback: TypeAlias = Callable[..., Any]

_OPTION: Final = "option"
_GROUP: Final = "group"


class SettingOption(click.Option):
    """An option that fills a field of a settings dataclass."""

    def __init__(
        self, *args: Any, section: str | None, selects: bool, declared_by: type, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.section = section
        """The title it is listed under in ``--help``."""
        self.selects = selects
        """Whether it says which answers are judged: reports name it."""
        self.declared_by = declared_by
        """The settings dataclass that has it."""


class SettingsCommand(click.Command):
    """A command whose ``--help`` lists the options of each section together."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, then the options that belong to none."""
        sections: dict[str | None, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", None), []).append(record)
        others = sections.pop(None, [])
        for title, records in (*sections.items(), ("Options", others)):
            if records:
                with formatter.section(str(title)):
                    formatter.write_dl(records)


def command() -> Callable[[Callback], click.Command]:
    """Make a function a command."""
    return click.command(cls=SettingsCommand)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    names: tuple[str, ...]
    parse: Callable[[Any], Any] | None
    selects: bool
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSection:
    """A settings dataclass of a command, and the title of its options."""

    title: str | None
    kind: type
    words: Mapping[str, str]
    """Put into the names and help texts of its options, in the place of ``{word}``."""


def option(
    *names: str,
    default: Any = None,
    parse: Callable[[Any], Any] | None = None,
    selects: bool = False,
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
    declared = _Option(names=names, parse=parse, selects=selects, attributes=attributes)
    if parse is not None and default is not None:  # only the command line has the form that is parsed
        return field(metadata={_OPTION: declared}, repr=not secret)
    return field(default=default, metadata={_OPTION: declared}, repr=not secret)


def group(kind: type, **words: str) -> Any:
    """Declare a field that holds another settings dataclass."""
    return field(metadata={_GROUP: section(None, kind, **words)})


def section(title: str | None, kind: type, **words: str) -> OptionSection:
    """Name a settings dataclass of a command, under a title of its own in ``--help``."""
    return OptionSection(title=title, kind=kind, words=words)


def takes(**sections: OptionSection | type) -> Callable[[Callback], Callback]:
    """Add the options of settings dataclasses to a command, which gets the dataclasses by these names."""
    wanted = {
        name: each if isinstance(each, OptionSection) else section(None, each)
        for name, each in sections.items()
    }

    def add_options(callback: Callback) -> Callback:
        @wraps(callback)
        def with_settings(**values: Any) -> Any:
            built = {name: _build(each, name, values) for name, each in wanted.items()}
            return callback(**built, **values)

        decorated: Callback = with_settings
        options = [each for name, part in wanted.items() for each in _options(part, name, part.title)]
        for add in reversed(options):
            decorated = add(decorated)
        return decorated

    return add_options


def given_selection(context: click.Context) -> Iterator[tuple[str, Any]]:
    """Yield the options that were given to choose answers, as they are written, with their values."""
    for parameter in _given(context):
        if parameter.selects:
            yield parameter.opts[0], context.params[parameter.name or ""]


def given_options_of(context: click.Context, kinds: Collection[type]) -> tuple[str, ...]:
    """Return the options of these settings dataclasses that were given, as they are written."""
    return tuple(parameter.opts[0] for parameter in _given(context) if parameter.declared_by in kinds)


def _given(context: click.Context) -> Iterator[SettingOption]:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if isinstance(parameter, SettingOption) and source is not click.core.ParameterSource.DEFAULT:
            yield parameter


def _options(
    part: OptionSection, path: str, title: str | None, words: Mapping[str, str] | None = None
) -> Iterator[Callable[[Callback], Callback]]:
    words = {**(words or {}), **part.words}
    for each in fields(part.kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            yield from _options(each.metadata[_GROUP], name, title, words)
        elif _OPTION in each.metadata:
            yield _decorator(each.metadata[_OPTION], part.kind, name, title, words)


def _decorator(
    declared: _Option, kind: type, name: str, title: str | None, words: Mapping[str, str]
) -> Callable[[Callback], Callback]:
    attributes = dict(declared.attributes)
    if words:
        attributes["help"] = _filled(attributes["help"], words)
    return click.option(
        *(_filled(each, words) for each in declared.names),
        name,
        cls=SettingOption,
        section=title,
        selects=declared.selects,
        declared_by=kind,
        callback=_parsing(declared.parse) if declared.parse else None,
        **attributes,
    )


def _parsing(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc

    return callback


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, meant in words.items():
        text = text.replace(f"{{{word}}}", meant)
    return text


def _build(part: OptionSection, path: str, values: dict[str, Any]) -> Any:
    """Make the dataclass of what was parsed, which it takes out of ``values``."""
    built: dict[str, Any] = {}
    for each in fields(part.kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            built[each.name] = _build(each.metadata[_GROUP], name, values)
        elif _OPTION in each.metadata:
            built[each.name] = values.pop(name)
    try:
        return part.kind(**built)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
