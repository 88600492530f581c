"""The tables of the index, in SQL that SQLite and PostgreSQL share but for the names of types.

Names begin with ``answer_``, so that they fit into another store's file. A missing text is empty.
"""

from __future__ import annotations

from typing import Final

INDEX_TABLES: Final = """
CREATE TABLE answer_stream (            -- where answers come from
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, service TEXT NOT NULL, model TEXT NOT NULL,
    prompt_version TEXT NOT NULL, service_version TEXT NOT NULL);
CREATE UNIQUE INDEX answer_stream_names
    ON answer_stream (tenant, service, model, prompt_version, service_version);
CREATE TABLE answer_row (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, judged_ns INTEGER NOT NULL,
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    carrier TEXT NOT NULL, supersedes TEXT NOT NULL,
    stream INTEGER NOT NULL, session TEXT NOT NULL, pipeline TEXT NOT NULL,
    label TEXT NOT NULL, reason TEXT NOT NULL, blame TEXT NOT NULL,
    judge TEXT NOT NULL, evaluator_version TEXT NOT NULL, rule TEXT NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    probability REAL, cost_usd REAL, doubt REAL NOT NULL, suspicion REAL,
    feedback TEXT NOT NULL, is_valid INTEGER NOT NULL, is_disputed INTEGER NOT NULL,
    position INTEGER NOT NULL,          -- in the random order
    question BLOB);                     -- sealed, where the file's content is
CREATE INDEX answer_row_time ON answer_row (time_ns);
CREATE INDEX answer_row_stream ON answer_row (stream, time_ns);
CREATE INDEX answer_row_trace ON answer_row (trace_id, carrier);
CREATE INDEX answer_row_supersedes ON answer_row (trace_id, supersedes) WHERE supersedes != '';
CREATE INDEX answer_row_position ON answer_row (position);
CREATE INDEX answer_row_cost ON answer_row (cost_usd) WHERE is_valid = 1 AND cost_usd IS NOT NULL;
CREATE INDEX answer_row_doubt ON answer_row (is_disputed, doubt, id) WHERE is_valid = 1;
CREATE INDEX answer_row_suspicion ON answer_row (suspicion) WHERE is_valid = 1 AND suspicion IS NOT NULL;
CREATE INDEX answer_row_session ON answer_row (session, id) WHERE session != '';
CREATE INDEX answer_row_conversation ON answer_row (time_ns) WHERE is_valid = 1 AND session != '';
CREATE INDEX answer_row_feedback ON answer_row (time_ns, feedback) WHERE feedback != '';
CREATE TABLE answer_score (
    answer INTEGER NOT NULL, metric TEXT NOT NULL, label TEXT NOT NULL, score REAL,
    is_lower_better INTEGER NOT NULL,
    PRIMARY KEY (answer, metric)) WITHOUT ROWID;
CREATE INDEX answer_score_order ON answer_score (metric, label, score, answer);
CREATE TABLE answer_feedback (          -- on answers that are not here yet
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    feedback TEXT NOT NULL);
CREATE UNIQUE INDEX answer_feedback_key ON answer_feedback (trace_id, span_id, tenant);
CREATE TABLE answer_session (           -- judged sessions; faults: a JSON list without texts
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL, trace_id TEXT NOT NULL,
    answer_span_id TEXT NOT NULL, span_id TEXT NOT NULL, supersedes TEXT NOT NULL, time_ns INTEGER NOT NULL,
    label TEXT NOT NULL, turns INTEGER NOT NULL, decided INTEGER NOT NULL, faithful INTEGER NOT NULL,
    contradictions INTEGER NOT NULL, repeated INTEGER NOT NULL, corrections INTEGER NOT NULL,
    unchecked INTEGER NOT NULL, faults TEXT NOT NULL, is_valid INTEGER NOT NULL);
CREATE UNIQUE INDEX answer_session_span ON answer_session (session, tenant, span_id);
CREATE INDEX answer_session_time ON answer_session (time_ns);
CREATE TABLE answer_touched (           -- hours (hours = 1) and days (hours = 24) whose sums do not hold
    hours INTEGER NOT NULL, first_hour INTEGER NOT NULL, writer INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hours, first_hour, writer)) WITHOUT ROWID;
CREATE TABLE answer_sum (               -- valid rows of an hour or of a day, in UTC
    hours INTEGER NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    passed INTEGER NOT NULL, failed INTEGER NOT NULL, error INTEGER NOT NULL, skipped INTEGER NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    healthy INTEGER NOT NULL, generation_problem INTEGER NOT NULL,
    retrieval_noise INTEGER NOT NULL, retrieval_failure INTEGER NOT NULL,
    cost_usd REAL NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (hours, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_cause_sum (         -- the same, by cause: blame:… or reason:…
    hours INTEGER NOT NULL, cause TEXT NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (hours, cause, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_metric_sum (        -- the same, by metric; weights are one over the probability
    hours INTEGER NOT NULL, metric TEXT NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL, weighed INTEGER NOT NULL, left_out INTEGER NOT NULL,
    weight REAL NOT NULL, score REAL NOT NULL, passing REAL NOT NULL, weight_weight REAL NOT NULL,
    weight_score REAL NOT NULL, score_score REAL NOT NULL,
    weight_passing REAL NOT NULL, passing_passing REAL NOT NULL,
    PRIMARY KEY (hours, metric, first_hour, stream)) WITHOUT ROWID;
"""
