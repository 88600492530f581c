"""Take the pictures in the docs again: ``python -m tests.pictures``. They show what the demo shows.

The demo's answers go, under dates of the last two weeks, through a real collector that replays their
annotators' labels; a real browser looks at its page. On one of the days many more answers are wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.pictures.browser import take
from tests.pictures.jaeger import running_jaeger_page
from tests.pictures.traffic import running_fortnight

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_CHROMIUM = Path("/usr/bin/chromium")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--into", type=Path, default=_IMAGES, help="the folder for the pictures")
    parser.add_argument("--chromium", type=Path, default=Path(os.environ.get("CHROMIUM", _CHROMIUM)))
    parser.add_argument(
        "--jaeger-ui",
        type=Path,
        default=os.environ.get("JAEGER_UI"),
        help="the folder of Jaeger's built page; without it, there is no picture of Jaeger",
    )
    options = parser.parse_args()
    if not options.chromium.exists():
        print(
            f"there is no {options.chromium}: install Chromium, or name one with --chromium", file=sys.stderr
        )
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jaeger = options.jaeger_ui and stack.enter_context(running_jaeger_page(options.jaeger_ui, folder))
        shown = stack.enter_context(running_fortnight(folder, jaeger))
        for picture in shown.pictures:
            size = take(picture, into=options.into, chromium=options.chromium)
            print(f"{options.into / picture.name}: {size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
