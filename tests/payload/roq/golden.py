"""The golden payloads: read once, skipped with a reason where they are absent."""

import gzip
import json
from functools import cache
from typing import Any

from tests.shared import shared


@cache
def _document() -> dict[str, Any]:
    return json.loads(shared("wire", "golden", "payloads.json").read_text())


def payloads() -> list[dict[str, Any]]:
    """Return the named payloads, `hex` and `expect`."""
    return _document()["payloads"]


def damaged() -> list[dict[str, Any]]:
    """Return the damaged buffers, `hex` and `outcome`."""
    return _document()["damaged"]


@cache
def random_payloads() -> list[dict[str, Any]]:
    """Return random payloads of all message types."""
    with gzip.open(shared("wire", "golden", "payloads_random.jsonl.gz"), "rt") as lines:
        return [json.loads(line) for line in lines]


def named(name: str) -> dict[str, Any]:
    """Return the payload of that name."""
    return next(case for case in payloads() if case["name"] == name)
