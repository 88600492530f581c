"""Where an endpoint is and how one gets in, as its base URL says."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

_ROUTE: Final = re.compile(r"/(?:chat/completions|embeddings)$")
"""Of a URL that was copied whole from a portal: what is asked there is added by ourselves."""
_DEPLOYMENT: Final = re.compile(r"(/openai/deployments/)([^/?#]+)(?:/(?:chat/completions|embeddings))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUrl:
    """A base URL, taken apart: what may be shown, and what may not."""

    url: str
    """Without user, password, query and slash at the end."""
    query: str = field(default="", repr=False)
    """Goes along with each request: Azure's ``api-version``, say."""
    login: str | None = field(default=None, repr=False)
    """What the header ``authorization`` says for the user and the password of the URL."""

    @classmethod
    def of(cls, base_url: str) -> BaseUrl:
        """Take a base URL apart."""
        url = urlsplit(base_url)
        path = _ROUTE.sub("", url.path.rstrip("/"))
        host = url.netloc.rpartition("@")[2]
        return cls(url=f"{url.scheme}://{host}{path}", query=url.query, login=_login(url))

    @property
    def is_deployment(self) -> bool:
        """Whether it is one deployment of Azure, by its classic address: keys go by another header there."""
        return bool(re.search(r"/openai/deployments/[^/]+$", self.url))

    def authorization(self, api_key: str) -> Mapping[str, str]:
        """Return the header that says who asks: the login of the URL, else the key, if there is one."""
        if self.login is not None:
            return {"authorization": self.login}
        if not api_key:
            return {}
        return {"api-key": api_key} if self.is_deployment else {"authorization": f"Bearer {api_key}"}

    def address(self, path: str) -> str:
        """Return the URL of a path, with the query."""
        mark = "&" if "?" in path else "?"
        return f"{self.url}{path}{mark}{self.query}" if self.query else f"{self.url}{path}"


def _login(url: SplitResult) -> str | None:
    if url.username is None:
        return None
    words = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


def secrets_in(base_url: str | None) -> tuple[str, ...]:
    """Return what of a base URL must not be shown, in each form in which somebody may repeat it."""
    url = urlsplit(base_url or "")
    if url.password is None:
        return ()
    return (url.password, unquote(url.password), (_login(url) or "").removeprefix("Basic "))


def beside(base_url: str | None, spec: str, environ: Mapping[str, str]) -> str | None:
    """Return the base URL of a model that is asked at the endpoint of another one.

    It is the same, but where it names one deployment of Azure: there the deployment that has the model's name
    is taken, since the other one would answer in its place.
    """
    kind, _, model = spec.partition(":")
    url = base_url or (environ.get("OPENAI_BASE_URL") if kind == "openai" else None)
    if not url or not model or not _DEPLOYMENT.search(url):
        return base_url
    return _DEPLOYMENT.sub(lambda found: f"{found[1]}{quote(model, safe='')}", url, count=1)
