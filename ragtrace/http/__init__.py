"""HTTP that goes out: where every client of ours is made, and every answer is read.

No client follows a redirect: whoever answers there would get the content and the token, and nobody named
them. No answer is held that is longer than it may be, unpacked or not. `tests/attack/test_redirects.py` sees
to it that no other module makes a client.
"""

from ragtrace.http._body import Body, BodyTooLarge, UnreadableBody
from ragtrace.http._clients import open_session, open_web_client, read_whole, reading_whole, redirected_to
