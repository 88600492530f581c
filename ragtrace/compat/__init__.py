"""Other tools' metrics, under their own rules: as scorings of our verdicts, or with their own calls."""

from ragtrace.compat.profile_metric import Profiled
from ragtrace.compat.tool import PeerCalls, PeerMetric, PeerOptions, PeerRun
from ragtrace.compat.tool_metric import PeerPrompted
from ragtrace.compat.tools import PROFILES, peer_metrics, peer_named

__all__ = [
    "PROFILES",
    "PeerCalls",
    "PeerMetric",
    "PeerOptions",
    "PeerPrompted",
    "PeerRun",
    "Profiled",
    "peer_metrics",
    "peer_named",
]
