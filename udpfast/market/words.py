"""The names of enumeration values, by the fields that carry their numbers."""

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

__all__ = ["CONTROL_WORDS", "ENUMS", "UPDATE_ENUMS", "UPDATE_WORDS"]


def _words(members: type[enum.IntEnum]) -> dict[int, str]:
    return {member.value: member.name for member in members}


def _numbered(words: str) -> dict[int, str]:
    return dict(enumerate(words.split()))


#: Names of values in the records that udpfast makes itself, by kind and field.
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

#: Enumerations of updates and their rows: names by number. 0 is "Undefined" in each.
ENUMS: dict[str, dict[int, str]] = {
    "Interval": _numbered("Undefined _1 _5 _10 _15 _30 _60 _300 _600 _900 _1800"),
    "OptionType": _numbered("Undefined Call Put"),
    "RequestIdType": _numbered("Undefined Base64 Base32 Simple UUID Hex16 Hex32"),
    "SecurityType": _numbered("Undefined Spot Futures Option Swap"),
    "Side": _numbered("Undefined Buy Sell"),
    "StatisticsType": _numbered(
        "Undefined OpenPrice SettlementPrice ClosePrice OpenInterest PreOpenInterest "
        "PreSettlementPrice PreClosePrice HighestTradedPrice LowestTradedPrice "
        "UpperLimitPrice LowerLimitPrice IndexValue MarginRate FundingRate "
        "FundingRatePrediction TradeVolume"
    ),
    "TradingStatus": _numbered(
        "Undefined StartOfDay PreOpen PreOpenNoCancel PreOpenFreeze Open FastMarket Halt "
        "CloseNotFinal PreClose PreCloseNoCancel PreCloseFreeze Close PostClose EndOfDay"
    ),
    "UpdateAction": _numbered("Undefined New Change Delete Trade"),
    "UpdateReason": _numbered("Undefined Created Modified Canceled Filled"),
    "UpdateType": _numbered("Undefined Snapshot Incremental Stale"),
}

#: Which fields carry which enumeration.
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

#: The names of values, by field.
UPDATE_WORDS: dict[str, dict[int, str]] = {
    field: ENUMS[name] for field, name in UPDATE_ENUMS.items()
}
