"""The rules as files: of Prometheus, and of Grafana's alerting."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import yaml

from ragtrace_collector.alerts.promql import written
from ragtrace_collector.alerts.rules import EVALUATION_ALERTS, AlertRule, RecordingRule, SloRules

_FAST: Final = timedelta(minutes=1)
_SLOW: Final = timedelta(minutes=10)
_GRAFANA_LABELS: Final = {"$value": "$values.A.Value"}


def prometheus_file(rules: Sequence[SloRules]) -> str:
    """Return a rule file of Prometheus: recording and alerting rules."""
    groups = [group for one in rules for group in _prometheus_groups(one)]
    others = {"name": "ragtrace-evaluation", "rules": [_prometheus_alert(rule) for rule in EVALUATION_ALERTS]}
    return _dumped("Written by `ragtrace slo rules`. docs/slo.md explains it.", {"groups": [*groups, others]})


def _prometheus_groups(rules: SloRules) -> list[dict[str, Any]]:
    name = rules.slo.name
    return [
        {
            "name": f"ragtrace-slo-{name}",
            "interval": written(_FAST),
            "rules": [
                *map(_recording, rules.recordings()),
                *map(_prometheus_alert, rules.alerts(recorded=True)),
            ],
        },
        {
            "name": f"ragtrace-slo-{name}-window",
            "interval": written(_SLOW),
            "rules": [_recording(rule) for rule in rules.slow_recordings()],
        },
    ]


def _recording(rule: RecordingRule) -> dict[str, Any]:
    return {"record": rule.name, "expr": rule.expression, "labels": rule.labels}


def _prometheus_alert(rule: AlertRule) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.expression,
        **({"for": written(rule.lasting)} if rule.lasting else {}),
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": _annotations(rule),
    }


def _annotations(rule: AlertRule) -> dict[str, str]:
    told = {"summary": rule.summary, "description": rule.description, "runbook_url": rule.runbook_url}
    return {name: text for name, text in told.items() if text}


def grafana_file(rules: Sequence[SloRules], *, datasource: str, folder: str) -> str:
    """Return a provisioning file of Grafana's alerting, for a Prometheus data source by its ``uid``."""
    groups = [
        _grafana_group(f"ragtrace-slo-{one.slo.name}", one.alerts(recorded=False), datasource, folder)
        for one in rules
    ]
    others = _grafana_group("ragtrace-evaluation", EVALUATION_ALERTS, datasource, folder)
    document = {"apiVersion": 1, "groups": [*groups, others]}
    return _dumped("Written by `ragtrace slo rules --format grafana`. docs/slo.md explains it.", document)


def _grafana_group(name: str, rules: Sequence[AlertRule], datasource: str, folder: str) -> dict[str, Any]:
    return {
        "orgId": 1,
        "name": name,
        "folder": folder,
        "interval": written(_FAST),
        "rules": [_grafana_rule(rule, group=name, datasource=datasource) for rule in rules],
    }


def _grafana_rule(rule: AlertRule, *, group: str, datasource: str) -> dict[str, Any]:
    title = " ".join(filter(None, (rule.name, rule.labels.get("slo"), rule.labels.get("long_window"))))
    return {
        "uid": f"ragtrace-{hashlib.sha256(f'{group}/{title}'.encode()).hexdigest()[:16]}",
        "title": title,
        "condition": "B",
        "for": written(rule.lasting) if rule.lasting else "0s",
        "noDataState": "OK",  # the expression has a value only while the alert fires
        "execErrState": "Error",
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": {name: _of_grafana(text) for name, text in _annotations(rule).items()},
        "data": [_grafana_query(rule, datasource), _GRAFANA_CONDITION],
    }


def _grafana_query(rule: AlertRule, datasource: str) -> dict[str, Any]:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": datasource,
        "model": {"refId": "A", "expr": rule.expression, "instant": True, "range": False},
    }


_GRAFANA_CONDITION: Final = {
    "refId": "B",
    "relativeTimeRange": {"from": 0, "to": 0},
    "datasourceUid": "__expr__",
    "model": {"refId": "B", "type": "math", "expression": "is_number($A)"},
}
"""A value of any size means that it fires."""


def _of_grafana(text: str) -> str:
    for prometheus, grafana in _GRAFANA_LABELS.items():
        text = text.replace(prometheus, grafana)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes repeated values out, and expressions of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _dumped(comment: str, document: dict[str, Any]) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"# {comment}\n{text}"
