"""Scores of a collector are in a real Phoenix where it shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace import semconv
from ragtrace.traces.trace import Resource
from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.phoenix_server import Phoenix
from tests.backends.process import eventually
from tests.rag_spans import rag_trace


def test_a_collector_writes_live_verdicts_on_the_spans_that_it_forwards(
    phoenix: Phoenix, tmp_path: Path
) -> None:
    name = "app-live"
    spans = [
        replace(span, resource=Resource(attributes={semconv.OI_PROJECT: name})) for span in rag_trace(0xBADE)
    ]
    export = [
        {"endpoint": f"{phoenix.url}/v1/traces", "forward": True},
        {"endpoint": f"phoenix:{phoenix.url}"},
    ]
    with collector_process(tmp_path, settings_of(tmp_path, export=export)) as collector:
        assert collector.send(*spans).status_code == 200
        eventually(lambda: phoenix.span_ids(name), what="the spans in Phoenix")
        eventually(lambda: phoenix.annotations(name), what="the verdict in Phoenix")
    found = phoenix.annotations(name)
    assert {each["span_id"] for each in found} == {spans[0].span_id}
    assert {(each["name"], each["result"]["label"]) for each in found} == {("faithfulness", "pass")}
    assert {each["metadata"]["ragtrace.eval.mode"] for each in found} == {"append"}
