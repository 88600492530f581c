"""Make the environments of the stories: ``python -m tests.stories``."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.stories.environments import ENVIRONMENTS, install, wheel

if __name__ == "__main__":
    wheel()
    with ThreadPoolExecutor(2) as pool:
        made = {name: pool.submit(install, environment) for name, environment in ENVIRONMENTS.items()}
    failed = {name: future.exception() for name, future in made.items() if future.exception()}
    for name, reason in failed.items():
        print(f"the environment {name!r} could not be made: {reason}", file=sys.stderr)
    sys.exit(bool(failed))
