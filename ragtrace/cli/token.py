"""``ragtrace token``: a bearer token for the collector's receivers and pages."""

from __future__ import annotations

import json

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import print_json, talk


@click.command()
@click.option("--name", required=True, help="Whose token it is, for the configuration.")
@click.option("--tenant", help="What is written on all that comes with it, as `ragtrace.tenant`.")
@click.option(
    "--may",
    type=click.Choice(["send", "read"]),
    multiple=True,
    default=("send",),
    show_default=True,
    help="Send spans, or read the collector's pages. Repeatable.",
)
@json_option
def token(name: str, tenant: str | None, may: tuple[str, ...], as_json: bool) -> None:
    """Make a token, and the line of `receive.tokens` for it.

    The token is shown this once and kept nowhere: the line holds its digest. Senders send it as
    `authorization: Bearer TOKEN` (OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN).

    \b
    Examples:
      ragtrace token --name checkout --tenant shop
      ragtrace token --name prometheus --may read
    """
    with needs_extra("collector"):
        from ragtrace_collector.web.tokens import digest_of, new_token

    secret = new_token()
    entry = {"name": name, "sha256": digest_of(secret).hex(), "tenant": tenant, "may": list(may)}
    if as_json:
        print_json({"token": secret, "entry": entry})
        return
    click.echo(secret)
    talk("Keep it now: it is shown this once. The line for `receive.tokens`, or for `receive.tokens_file`:")
    click.echo(f"- {json.dumps(entry)}")
