"""A Flask application that is instrumented where it is loaded: with `--preload`, before the forks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import flask

import ragtrace

ragtrace.instrument(service_name="desk")
app = flask.Flask("desk")
asked = ragtrace.rag(question=lambda: flask.request.get_json()["question"])


def pieces() -> Iterator[str]:
    yield f"Ada {os.getpid()}"
    yield f" {flask.request.path}"


@app.post("/mapping")
@asked
def mapping() -> dict[str, str]:
    return {"answer": "".join(pieces())}


@app.post("/json")
@asked
def as_json() -> flask.Response:
    return flask.jsonify(answer="".join(pieces()))


@app.post("/tuple")
@asked
def as_tuple() -> Any:
    return "".join(pieces()), 201, {"x-header": "kept"}


@app.post("/generator")
@asked
def generator() -> Any:
    return flask.stream_with_context(pieces()), {"x-header": "kept"}


@app.post("/streamed")
@asked
def streamed() -> flask.Response:
    return flask.Response(
        flask.stream_with_context(pieces()), mimetype="text/plain", headers={"x-header": "kept"}
    )
