"""Other tools' metrics, under their own rules: as scorings of our verdicts, or with their own calls."""

from ragtrace.compat.peer import PeerCalls, PeerMetric, PeerOptions, PeerRun
from ragtrace.compat.peers import PROFILES, peer_metrics, peer_named
from ragtrace.compat.profiled import Profiled
from ragtrace.compat.running import PeerPrompted

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
