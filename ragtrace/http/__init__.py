"""Outgoing HTTP: this package creates all clients and reads all responses.

No client follows a redirect, because the target, which the user did not configure, would get the content and
the token. Responses are bounded, compressed or not. `tests/attack/test_redirects.py` checks that no other
module creates a client.
"""

from ragtrace.http._body import Body, BodyTooLarge, UnreadableBody
from ragtrace.http._clients import open_web_client, read_whole, reading_whole, redirected_to
