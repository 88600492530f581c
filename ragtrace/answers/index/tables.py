"""The tables of the index, to be made as a migration step of the file that they are in."""

from __future__ import annotations

from typing import Final

_FIRST: Final = """
CREATE TABLE answer_word (              -- names as small numbers
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, text TEXT NOT NULL, newest_hour INTEGER NOT NULL,
    is_lower_better INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX answer_word_text ON answer_word (kind, text);
CREATE TABLE answer_stream (            -- tenant, service, model and prompt version as one small number
    id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, service INTEGER NOT NULL, model INTEGER NOT NULL,
    prompt_version INTEGER NOT NULL, newest_hour INTEGER NOT NULL);
CREATE UNIQUE INDEX answer_stream_names ON answer_stream (tenant, service, model, prompt_version);
CREATE TABLE answer_row (
    id INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL, judged_after_ns INTEGER NOT NULL,
    trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL, span INTEGER NOT NULL,
    carrier INTEGER NOT NULL, supersedes INTEGER,
    stream INTEGER NOT NULL, session, session_hash INTEGER,
    label INTEGER NOT NULL, reason INTEGER, blame INTEGER, judge INTEGER, evaluator INTEGER, rule INTEGER,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    probability REAL, cost INTEGER, feedback INTEGER NOT NULL, is_valid INTEGER NOT NULL,
    is_alone INTEGER NOT NULL, position INTEGER NOT NULL, metrics BLOB NOT NULL);
CREATE INDEX answer_row_time ON answer_row (time_ns);
CREATE INDEX answer_row_stream ON answer_row (stream, time_ns) WHERE is_valid = 1;
CREATE INDEX answer_row_trace ON answer_row (trace_low, is_alone, carrier);
CREATE INDEX answer_row_supersedes ON answer_row (trace_low, supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX answer_row_position ON answer_row (position);
CREATE INDEX answer_row_cost ON answer_row (cost) WHERE is_valid = 1 AND cost IS NOT NULL;
CREATE INDEX answer_row_session ON answer_row (session_hash) WHERE session_hash IS NOT NULL;
CREATE INDEX answer_row_feedback ON answer_row (feedback, time_ns) WHERE feedback > 0;
CREATE TABLE answer_score (             -- the scores of valid rows, in order
    metric INTEGER NOT NULL, label INTEGER NOT NULL, score INTEGER NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (metric, label, score, id)) WITHOUT ROWID;
CREATE TABLE answer_feedback (          -- on answers that are not here yet
    id INTEGER PRIMARY KEY, trace TEXT NOT NULL, span TEXT NOT NULL, tenant TEXT NOT NULL,
    feedback INTEGER NOT NULL);
CREATE UNIQUE INDEX answer_feedback_key ON answer_feedback (trace, span, tenant);
CREATE TABLE answer_size (rows INTEGER NOT NULL);
INSERT INTO answer_size VALUES (0);
CREATE TABLE answer_sums (              -- valid rows by hour (hours = 1) and by day (hours = 24)
    hours INTEGER NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    passed INTEGER NOT NULL, failed INTEGER NOT NULL, error INTEGER NOT NULL, skipped INTEGER NOT NULL,
    supported INTEGER NOT NULL, contradicted INTEGER NOT NULL, unsupported INTEGER NOT NULL,
    unjudged INTEGER NOT NULL, relevant INTEGER NOT NULL, partly_relevant INTEGER NOT NULL,
    irrelevant INTEGER NOT NULL, unjudged_chunks INTEGER NOT NULL,
    healthy INTEGER NOT NULL, generation_problem INTEGER NOT NULL,
    retrieval_noise INTEGER NOT NULL, retrieval_failure INTEGER NOT NULL,
    cost INTEGER NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (hours, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_word_sums (         -- the same, by blame and by reason
    hours INTEGER NOT NULL, word INTEGER NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (hours, word, first_hour, stream)) WITHOUT ROWID;
CREATE TABLE answer_metric_sums (       -- the same, by metric
    hours INTEGER NOT NULL, metric INTEGER NOT NULL, first_hour INTEGER NOT NULL, stream INTEGER NOT NULL,
    answers INTEGER NOT NULL, passed INTEGER NOT NULL, failed INTEGER NOT NULL, error INTEGER NOT NULL,
    skipped INTEGER NOT NULL, weighed INTEGER NOT NULL, left_out INTEGER NOT NULL,
    weight INTEGER NOT NULL, score INTEGER NOT NULL, pass INTEGER NOT NULL,
    weight_weight INTEGER NOT NULL, weight_weight_low INTEGER NOT NULL,
    weight_score INTEGER NOT NULL, weight_score_low INTEGER NOT NULL,
    score_score INTEGER NOT NULL, score_score_low INTEGER NOT NULL,
    weight_pass INTEGER NOT NULL, weight_pass_low INTEGER NOT NULL,
    pass_pass INTEGER NOT NULL, pass_pass_low INTEGER NOT NULL,
    PRIMARY KEY (hours, metric, first_hour, stream)) WITHOUT ROWID;
"""
_DOUBT: Final = """
ALTER TABLE answer_row ADD COLUMN doubt INTEGER NOT NULL DEFAULT 0;
CREATE INDEX answer_row_doubt ON answer_row (doubt) WHERE is_valid = 1;
ALTER TABLE answer_size ADD COLUMN names INTEGER NOT NULL DEFAULT 0;    -- changes when a name does
UPDATE answer_row SET doubt = 100 * unjudged / (supported + contradicted + unsupported + unjudged)
    WHERE supported + contradicted + unsupported + unjudged > 0;
"""
_SUSPICION: Final = """
ALTER TABLE answer_row ADD COLUMN suspicion INTEGER;
CREATE INDEX answer_row_suspicion ON answer_row (suspicion) WHERE is_valid = 1 AND suspicion IS NOT NULL;
"""
_SESSIONS: Final = """
CREATE TABLE answer_session (           -- judged sessions; faults: a JSON list without texts
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL, trace_id TEXT NOT NULL,
    answer_span TEXT NOT NULL, span_id TEXT NOT NULL, supersedes TEXT NOT NULL, time_ns INTEGER NOT NULL,
    label TEXT NOT NULL, turns INTEGER NOT NULL, decided INTEGER NOT NULL, faithful INTEGER NOT NULL,
    contradictions INTEGER NOT NULL, repeated INTEGER NOT NULL, corrections INTEGER NOT NULL,
    unchecked INTEGER NOT NULL, faults TEXT NOT NULL, is_valid INTEGER NOT NULL);
CREATE UNIQUE INDEX answer_session_span ON answer_session (session, tenant, span_id);
CREATE INDEX answer_session_time ON answer_session (time_ns);
"""
_TEXTS: Final = """
ALTER TABLE answer_stream ADD COLUMN service_version INTEGER NOT NULL DEFAULT 0;
DROP INDEX answer_stream_names;
CREATE UNIQUE INDEX answer_stream_names
    ON answer_stream (tenant, service, model, prompt_version, service_version);
ALTER TABLE answer_row ADD COLUMN pipeline INTEGER;
ALTER TABLE answer_row ADD COLUMN question BLOB;    -- sealed, where the file's content is
CREATE INDEX answer_row_conversation ON answer_row (time_ns, id)
    WHERE is_valid = 1 AND session_hash IS NOT NULL;
"""
INDEX_STEPS: Final[tuple[str, ...]] = (_FIRST, _DOUBT, _SUSPICION, _SESSIONS, _TEXTS)
"""From one version of the tables to the next. Names begin with ``answer_``, so that they fit into another
store's file."""
INDEX_TABLES: Final[str] = "".join(INDEX_STEPS)
"""The tables as they are now, for a new file."""
