"""The base URL of an endpoint: its address and its credentials."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

_ROUTE: Final = re.compile(r"/(?:chat/completions|embeddings)$")
"""Paths at the end of URLs copied from a portal. They are removed: requests add the path."""
_DEPLOYMENT: Final = re.compile(r"(/openai/deployments/)([^/?#]+)(?:/(?:chat/completions|embeddings))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUrl:
    """A parsed base URL: its public and its secret parts."""

    url: str
    """Without user, password, query and slash at the end."""
    query: str = field(default="", repr=False)
    """Added to each request, for example Azure's ``api-version``."""
    login: str | None = field(default=None, repr=False)
    """The ``authorization`` header for the user and password of the URL."""

    @classmethod
    def of(cls, base_url: str) -> BaseUrl:
        """Parse a base URL."""
        url = urlsplit(base_url)
        path = _ROUTE.sub("", url.path.rstrip("/"))
        host = url.netloc.rpartition("@")[2]
        return cls(url=f"{url.scheme}://{host}{path}", query=url.query, login=_login(url))

    @property
    def is_deployment(self) -> bool:
        """Whether it is the classic address of an Azure deployment, which takes the key in another header."""
        return bool(re.search(r"/openai/deployments/[^/]+$", self.url))

    def authorization(self, api_key: str) -> Mapping[str, str]:
        """Return the authentication header: the login of the URL, else the key, else none."""
        if self.login is not None:
            return {"authorization": self.login}
        if not api_key:
            return {}
        return {"api-key": api_key} if self.is_deployment else {"authorization": f"Bearer {api_key}"}


def _login(url: SplitResult) -> str | None:
    if url.username is None:
        return None
    words = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


def secrets_in(base_url: str | None) -> tuple[str, ...]:
    """Return the secrets of a base URL, in every form in which an error message may repeat them."""
    url = urlsplit(base_url or "")
    if url.password is None:
        return ()
    return (url.password, unquote(url.password), (_login(url) or "").removeprefix("Basic "))


def sibling_url(base_url: str | None, spec: str, environ: Mapping[str, str]) -> str | None:
    """Return the base URL for a second model at the same endpoint.

    It is the same URL, except if it names an Azure deployment: then the deployment is replaced by the one
    with the model's name. The first deployment would answer with its own model.
    """
    kind, _, model = spec.partition(":")
    url = base_url or (environ.get("OPENAI_BASE_URL") if kind == "openai" else None)
    if not url or not model or not _DEPLOYMENT.search(url):
        return base_url
    return _DEPLOYMENT.sub(lambda found: f"{found[1]}{quote(model, safe='')}", url, count=1)
