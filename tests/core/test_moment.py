"""Whatever a user may give as a moment is the same moment."""

import datetime

import numpy as np
import pytest

from udpfast.core.moment import moment_text, unix_ns
from udpfast.errors import ConfigError

AT_NS = 1_787_304_600_123_456_000
BELOW_NS = AT_NS + 789


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (AT_NS, AT_NS),
        (str(AT_NS), AT_NS),
        (np.int64(AT_NS), AT_NS),
        ("2026-08-21T09:30:00.123456Z", AT_NS),
        ("2026-08-21T11:30:00.123456789+02:00", BELOW_NS),
        (moment_text(BELOW_NS), BELOW_NS),
        (datetime.datetime.fromtimestamp(1_787_304_600, datetime.UTC), AT_NS - 123_456_000),
        (np.datetime64(BELOW_NS, "ns"), BELOW_NS),
        (np.datetime64("2026-08-21T09:30"), AT_NS - 123_456_000),
    ],
)
def test_unix_ns_takes_every_kind_of_moment(when, expected):
    assert unix_ns(when, "start") == expected


def test_unix_ns_takes_a_timestamp_of_pandas():
    pandas = pytest.importorskip("pandas")
    when = pandas.Timestamp(BELOW_NS, tz="UTC")
    assert unix_ns(when, "start") == unix_ns(when.to_datetime64(), "start") == BELOW_NS


@pytest.mark.parametrize(
    "when",
    [
        np.datetime64("NaT"),
        np.datetime64("1970-01-01"),
        np.array([AT_NS, AT_NS], "M8[ns]"),
        datetime.date(2026, 8, 21),
        datetime.datetime(2026, 8, 21),
        "2026-08-21",
        True,
        None,
        -1,
    ],
)
def test_unix_ns_refuses_what_is_no_moment(when):
    with pytest.raises(ConfigError, match="start must"):
        unix_ns(when, "start")
