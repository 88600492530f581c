"""The program of the child process that serves a GGUF file (see `llama_process`).

It is run by its path and imports only the standard library and xllamacpp, not ragtrace. It reads its settings
as one line of JSON from stdin, writes ``{"url": …}`` when it is ready, and ends at the end of stdin, that is
when its parent has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1
_ERRORS_ONLY = 1
_PROMPT_CACHE_MIB = 512
_LOOK_AGAIN_S = 1.0


def main() -> None:
    """Serve until the parent ends."""
    parent = os.getppid()
    settings = json.loads(sys.stdin.buffer.raw.readline())  # type: ignore[union-attr]
    _end_with_parent(signal.SIGKILL)  # no Python code runs while the model loads
    server = _serve(settings)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _end_with_parent(0)  # `_watch` takes over: the signal also comes when a mere thread of it ends
    os.write(sys.stdout.fileno(), json.dumps({"url": server.listening_address}).encode() + b"\n")
    _be_silent()
    threading.Event().wait()


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["n_ctx"] * settings["parallel"]  # shared among the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [settings["api_key"]]  # other users of the machine can reach the port
    params.ui = False
    params.verbosity = _ERRORS_ONLY
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    return xllamacpp.Server(params)


def _end_with_parent(signum: int) -> None:
    with suppress(OSError, AttributeError):  # only Linux has it; elsewhere `_watch` is enough
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)


def _watch(parent: int) -> None:
    # a fork of the parent may keep our stdin open, so check the parent's id too
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], _LOOK_AGAIN_S)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            break
    os._exit(0)


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())


if __name__ == "__main__":
    main()
