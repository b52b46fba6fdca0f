"""host.toml: one plan of cores for all feeds of a directory."""

import pytest

from udpfast.config.host import HostConfig, core_list, parse_host, plan_cores
from udpfast.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("", []),
        ("3", [3]),
        ("2-4", [2, 3, 4]),
        ("10,2-4,3", [2, 3, 4, 10]),
        ("0,8191", [0, 8191]),
    ],
)
def test_cores_are_listed_as_taskset_writes_them(text, cores):
    assert core_list(text) == cores


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "4-2", "8192", "1,,2", "1-2-3", "0-10:2", " ", "1 2", "²"]
)
def test_other_texts_are_refused_with_what_was_found(text):
    with pytest.raises(ConfigError, match="cores: expected cores such as"):
        parse_host({"cores": text})


def test_feeds_get_cores_in_their_order_and_keep_their_own():
    host = HostConfig(cores="2-5")
    feeds = {"a": None, "b": 3, "c": None, "d": None}
    assert plan_cores(feeds, host, "host.toml") == {"a": 2, "b": 3, "c": 4, "d": 5}


def test_without_cores_only_those_are_pinned_that_say_so_themselves():
    assert plan_cores({"a": None, "b": 7}, HostConfig(), "host.toml") == {"b": 7}


def test_a_core_is_shared_only_when_each_has_a_feed():
    host = HostConfig(cores="0-1", feeds_per_core=2)
    feeds = dict.fromkeys("abc")
    assert plan_cores(feeds, host, "host.toml") == {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("feeds", "what"),
    [
        (dict.fromkeys("abc"), 'expected room for 3 feeds, found room for 2 in "2-3"'),
        ({"a": 2, "b": None, "c": None}, "expected room for 2 feeds, found room for 1"),
        ({"a": 9, "b": 9}, "expected at most 1 feeds on core 9 .*, found a, b"),
    ],
)
def test_a_plan_without_room_is_refused(feeds, what):
    with pytest.raises(ConfigError, match=f"host.toml: .*{what}"):
        plan_cores(feeds, HostConfig(cores="2-3"), "host.toml")


def test_first_wait_is_at_most_the_longest():
    with pytest.raises(ConfigError, match="restart_first_ms: expected at most"):
        parse_host({"restart_first_ms": 500, "restart_longest_ms": 400})
