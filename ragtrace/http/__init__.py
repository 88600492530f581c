"""Outgoing HTTP: this package creates all clients and reads all responses.

No client follows a redirect, because the target, which the user did not configure, would get the content and
the token. Responses are bounded, compressed or not. `tests/architecture/test_clients.py` checks that no
other module creates a client.
"""

from ragtrace.http.client import (
    Body,
    BodyTooLarge,
    UnreadableBody,
    client_options,
    open_client,
    redirected_to,
    without_secrets,
)
