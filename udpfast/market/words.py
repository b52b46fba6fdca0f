"""The words of enumerations, by the fields that carry their numbers."""

from __future__ import annotations

import enum

from udpfast.core.layout import (
    ClockReason,
    ConnectionScope,
    ConnectionStatus,
    GapReason,
    Kind,
    LappedReason,
    ObjectStatus,
    ObjectWait,
    SessionReason,
)
from udpfast.market.schema import ENUMS

__all__ = ["CONTROL_WORDS", "UPDATE_ENUMS", "UPDATE_WORDS"]


def _words(members: type[enum.IntEnum]) -> dict[int, str]:
    return {member.value: member.name for member in members}


#: Of the records that udpfast makes itself: by kind and field.
CONTROL_WORDS: dict[tuple[Kind, str], dict[int, str]] = {
    (Kind.GAP, "reason"): _words(GapReason),
    (Kind.SESSION, "reason"): _words(SessionReason),
    (Kind.LAPPED, "reason"): _words(LappedReason),
    (Kind.CLOCK, "reason"): _words(ClockReason),
    (Kind.STALE, "status"): _words(ObjectStatus),
    (Kind.RECOVERED, "status"): _words(ObjectStatus),
    (Kind.STALE, "waits"): _words(ObjectWait),
    (Kind.RECOVERED, "waits"): _words(ObjectWait),
    (Kind.CONNECTION, "status"): _words(ConnectionStatus),
    (Kind.CONNECTION, "scope"): _words(ConnectionScope),
}

#: Enumerations of the publisher's schema that updates and their rows have: by field.
UPDATE_ENUMS = {
    "action": "UpdateAction",
    "oms_request_id_type": "RequestIdType",
    "option_type": "OptionType",
    "reason": "UpdateReason",
    "security_type": "SecurityType",
    "side": "Side",
    "trading_status": "TradingStatus",
    "ts_interval": "Interval",
    "type": "StatisticsType",
    "update_action": "UpdateAction",
    "update_type": "UpdateType",
}

#: Their words, by field. 0 is "Undefined" in each.
UPDATE_WORDS: dict[str, dict[int, str]] = {
    field: ENUMS[name] for field, name in UPDATE_ENUMS.items()
}
