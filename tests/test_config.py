"""The TOML files: defaults, and errors that say what was expected and what was found."""

from typing import Any

import pytest

from udpfast.config import describe, load_feed, parse_feed, parse_publish
from udpfast.errors import ConfigError

LINE = {"name": "A", "address": "127.0.0.1:9001"}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return a minimal feed with one key set."""
    tables: dict[str, Any] = {"name": "x", "incremental": {"lines": [dict(LINE)]}}
    node = tables
    *tables_on_the_way, last = path.split(".")
    for name in tables_on_the_way:
        node = node.setdefault(name, {})
    node[last] = value
    return tables


def test_config_minimal_file_takes_every_default(tmp_path):
    path = tmp_path / "feed.toml"
    path.write_text('name = "x"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:9001"\n')
    config = load_feed(path)
    assert config.window.size == 8192
    assert config.window.lost_packet_wait_us == 5000
    assert config.window.on_gap == "keep_all"
    assert config.session.adopt_datagrams == 2
    assert config.incremental.lines[0].address == "127.0.0.1:9001"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("window.size", 1000, ["window.size", "power of two", "1000"]),
        ("window.size", 1 << 31, ["window.size", "1073741824", "2147483648"]),
        ("receive.rcvbuf_bytes", 1 << 31, ["receive.rcvbuf_bytes", "2147483647", "2147483648"]),
        ("window.size", "big", ["window.size", "int", "'big'"]),
        ("window.sise", 8192, ["window.sise", "did you mean 'size'"]),
        ("window.on_gap", "some", ["window.on_gap", "expected", "'some'"]),
        ("window.lost_packet_wait_us", 0, ["window.lost_packet_wait_us", ">= 1", "found 0"]),
        ("window.out_of_order_max_interval", 9000, ["out_of_order_max_interval", "8192", "9000"]),
        ("name", "a/b", ["name", "expected", "'a/b'"]),
        ("incremental.lines", [], ["incremental.lines", "at least one line"]),
        ("incremental.lines", [{"name": "A"}], ["lines[0].address", "found none"]),
        ("wire.encodings", [], ["wire.encodings", "expected", "[]"]),
        (
            "incremental.lines",
            [{"name": "A", "address": "localhost:9001"}],
            ["ip:port", "localhost"],
        ),
        (
            "incremental.lines",
            [{"name": name, "address": "1.2.3.4:1"} for name in "AB"],
            ["incremental.B", "1.2.3.4:1", "incremental.A has"],
        ),
        ("incremental.lines", [{"name": "A", "address": "nowhere"}], ["ip:port", "'nowhere'"]),
        (
            "incremental.lines",
            [{"name": "A", "address": "1.2.3.4:1"}] * 2,
            ["distinct", "'A' twice"],
        ),
        ("ring.capacity_bytes", 1 << 20, ["ring.capacity_bytes", "4194304", "1048576"]),
        ("agent.core", -1, ["agent.core", "-1"]),
    ],
)
def test_config_wrong_value_names_key_expected_found(path, value, words):
    with pytest.raises(ConfigError) as caught:
        parse_feed(changed(path, value), where="feed.toml")
    message = str(caught.value)
    assert message.startswith("feed.toml: ")
    for word in words:
        assert word in message, message


def test_config_missing_file_and_broken_toml_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: expected a TOML file, found none"):
        load_feed(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = \n")
    with pytest.raises(ConfigError, match=r"broken\.toml: expected TOML"):
        load_feed(broken)


def test_config_describe_gives_every_key_a_reason():
    settings = list(describe(parse_feed(changed("window.size", 16384))))
    by_key = {setting.key: setting for setting in settings}
    assert not by_key["window.size"].is_default
    assert by_key["window.lost_packet_wait_us"].is_default
    assert by_key["incremental.lines[0].address"].value == "127.0.0.1:9001"
    assert [setting.key for setting in settings if not setting.reason] == []


def test_config_publish_checks_destinations():
    config = parse_publish({"incremental": [{"address": "239.1.1.1:9001"}]})
    assert config.heartbeat_interval_ms == 1000
    with pytest.raises(ConfigError, match=r"incremental\[0\]\.address: expected ip:port"):
        parse_publish({"incremental": [{"address": "239.1.1.1"}]})


def test_config_wrong_key_of_an_array_has_a_hint():
    with pytest.raises(ConfigError, match="did you mean 'ttl'"):
        parse_publish({"incremental": [{"address": "127.0.0.1:1", "tl": 1}]})
