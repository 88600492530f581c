"""Resolve the content policy of ``instrument()``: from code, else the environment, else a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragtrace.capture._guard import log
from ragtrace.capture._hints import hint
from ragtrace.capture.privacy.policy import MODES, SHORTEST_KEY, ContentMode, ContentPolicy, Redact

CONTENT = "RAGTRACE_CAPTURE_CONTENT"
KEY = "RAGTRACE_CONTENT_KEY"
_OTEL_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_NOT_ON_SPANS = frozenset({"no_content", "event_only", "false"})
_SHORT_FORMS: Mapping[str, ContentMode] = {
    **dict.fromkeys(("1", "true", "yes"), "on"),
    **dict.fromkeys(("0", "false", "no"), "off"),
    **{mode: mode for mode in MODES},
}


def resolved_policy(
    env: Mapping[str, str],
    capture: bool | None,
    content: ContentPolicy | ContentMode | None,
    redact: Redact | None,
) -> ContentPolicy:
    """Return the policy with its mode: ``off`` if the requested mode is unknown or not available."""
    if isinstance(content, ContentPolicy | None):
        policy = content or ContentPolicy()
        told = policy.mode
    else:  # a word, or a mistake such as False: an unknown value records nothing
        policy, told = ContentPolicy(), _mode(str(content), "content")
    mode = _with_short_form(told, capture) or _mode_by_env(env)
    key = policy.key or env.get(KEY) or None
    if key is not None and len(key) < SHORTEST_KEY:
        log.error("ragtrace: content is off: %s has less than %d characters", KEY, SHORTEST_KEY)
        mode, key = "off", None
    return replace(policy, mode=_possible(mode), key=key, redact=redact or policy.redact)


def _with_short_form(told: ContentMode | None, capture: bool | None) -> ContentMode | None:
    if capture is None:
        return told
    if not capture:
        return "off"
    return told if told in {"redacted", "hashed"} else "on"


def _mode_by_env(env: Mapping[str, str]) -> ContentMode:
    word = env.get(CONTENT, "").strip()
    if word:
        return _mode(word, CONTENT)
    return "off" if env.get(_OTEL_CONTENT, "").strip().lower() in _NOT_ON_SPANS else "on"


def _mode(word: str, where: str) -> ContentMode:
    mode = _SHORT_FORMS.get(word.strip().lower())
    if mode is None:
        log.error("ragtrace: %s is none of %s: content is off", where, ", ".join(MODES))
    return mode or "off"


def _possible(mode: ContentMode) -> ContentMode:
    if mode != "redacted":
        return mode
    try:
        import ragtrace.capture.privacy._redaction  # noqa: F401 - load it now, not in the first call
    except ImportError as exc:
        from ragtrace.extras import install_command

        hint("redaction", f"content is off: redaction needs {exc.name}: {install_command('privacy')}")
        return "off"
    return mode
