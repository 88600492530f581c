"""The browser, and three answers on pages: once for a module, as Playwright keeps its thread's loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from playwright.sync_api import Browser

from tests.backends.binary import required
from tests.browser.chromium import running_chromium
from tests.browser.served import ServedPages, serving

_FROM_ENVIRONMENT = os.environ.get("CHROMIUM")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run the system's Chromium."""
    program = _FROM_ENVIRONMENT or which("chromium") or which("chromium-browser") or which("google-chrome")
    reason = "there is no Chromium: install the package `chromium`, or name a program in CHROMIUM"
    with running_chromium(required(Path(program or "/usr/bin/chromium"), reason=reason)) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPages]:
    """Serve three ordinary answers."""
    with serving(tmp_path_factory.mktemp("pages")) as served:
        yield served
