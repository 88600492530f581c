"""A small language model behind llama.cpp's own server, which speaks OpenAI's API.

It runs in a process of its own, on loopback, and ends with the one that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ERRORS_ONLY = 1


@contextmanager
def running_small_model(gguf: Path, *, context: int) -> Iterator[str]:
    """Serve a GGUF file until the block ends, and give the base URL.

    ``context`` is how many tokens prompt and reply may have together.

    Raises:
        RuntimeError: it cannot be served; llama.cpp says why on stderr.
    """
    command = [sys.executable, "-P", __file__, str(gguf), str(context)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"{gguf} cannot be served: exit code {process.wait()}")
            yield f"{address}/v1"
        finally:
            process.kill()


def _serve(gguf: str, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_ctx = context
    params.n_parallel = 1
    # several threads wait for each other at every layer: slow where tests share their cores
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.ui = False
    params.verbosity = _ERRORS_ONLY
    return xllamacpp.Server(params)


if __name__ == "__main__":
    served = _serve(sys.argv[1], int(sys.argv[2]))
    print(served.listening_address, flush=True)
    sys.stdin.read()  # until the process that started this one has ended
    os._exit(0)
