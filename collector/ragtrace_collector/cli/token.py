"""``ragtrace token``: a bearer token for the collector's receivers and pages."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import JsonOption
from ragtrace.cli.render import print_json, talk
from ragtrace.cli.settings import command, group, option, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """Whose token it is, and what it allows."""

    name: str = option("--name", required=True, help="The token's owner, for the configuration.")
    tenant: str | None = option(
        "--tenant", help="The value of `ragtrace.tenant` on all spans sent with the token."
    )
    may: tuple[str, ...] = option(
        "--may",
        type=click.Choice(["send", "read", "review"]),
        multiple=True,
        default=("send",),
        show_default=True,
        help="Send spans, read the collector's pages and judged answers, or review answers. Repeatable.",
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(options=TokenOptions)
def token(options: TokenOptions) -> None:
    """Make a token, and its line for `receive.tokens`.

    The token is shown only once and saved nowhere: the line holds its digest. Senders send it as
    `authorization: Bearer TOKEN` (OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN).

    \b
    Examples:
      ragtrace token --name checkout --tenant shop
      ragtrace token --name prometheus --may read
      ragtrace token --name ada --may read --may review
    """
    with needs_extra("collector"):
        from ragtrace_collector.web.tokens import digest_of, new_token

    secret = new_token()
    entry = {
        "name": options.name,
        "sha256": digest_of(secret).hex(),
        "tenant": options.tenant,
        "may": list(options.may),
    }
    if options.json.wanted:
        print_json({"token": secret, "entry": entry})
        return
    click.echo(secret)
    talk("Keep it now: it is shown only once. The line for `receive.tokens`, or for `receive.tokens_file`:")
    click.echo(f"- {json.dumps(entry)}")
