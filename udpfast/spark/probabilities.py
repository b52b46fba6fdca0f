"""The quantiles of every table of latencies and leads, in per cent."""

__all__ = ["PROBABILITIES"]

PROBABILITIES = {
    "p10": 10.0,
    "p25": 25.0,
    "p50": 50.0,
    "p75": 75.0,
    "p90": 90.0,
    "p95": 95.0,
    "p99": 99.0,
    "p99_9": 99.9,
    "p99_99": 99.99,
}
