"""The TOML files: defaults, and errors that name what was expected and what was found."""

import os
from typing import Any

import pytest

from lab.settings_edges import (
    FILES,
    VALUES,
    broken,
    edges_of,
    keys_of,
    tables_with,
    trial,
)
from scripts.generate_reference import example_feed
from udpfast.config import describe, load_feed, load_publish, parse_feed, parse_publish
from udpfast.config.checks import NAME, SENDER
from udpfast.errors import ConfigError
from udpfast.host import HostUse
from udpfast.net.line import ReceiveOptions

LINE = {"name": "A", "address": "127.0.0.1:9001"}
RELAYED = {"name": "far", "incremental": "127.0.0.1:9101"}


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
        ("window.size", "big", ["window.size: expected a whole number, found 'big'"]),
        ("window.size", "8192", ["whole number, found '8192'; write it without quotes"]),
        ("image.enabled", "yes", ["image.enabled: expected true or false, found 'yes'"]),
        ("name", 5, ["name: expected text, found 5; write it in quotes"]),
        ("incremental.lines", [LINE] * 9, ["incremental.lines: expected at most 8, found 9"]),
        ("window.sise", 8192, ["window.sise", "did you mean 'size'"]),
        ("lines", [], ["key of the file", "did you mean incremental.lines or snapshot.lines or"]),
        ("ring.size", 1, ["a key of [ring]", "did you mean window.size?"]),
        ("incremental.lines", {"name": "A"}, ["expected tables [[incremental.lines]], each in"]),
        ("window.lost_packet_wait_us", 5.5, ['expected a whole number or "auto", found 5.5']),
        ("window.lost_packet_wait_us", "x", ["expected 1 to 60,000,000, or auto, found 'x'"]),
        ("window.on_gap", "some", ["window.on_gap", "expected", "'some'"]),
        ("window.lost_packet_wait_us", 0, ["window.lost_packet_wait_us", ">= 1", "found 0"]),
        ("window.out_of_order_max_interval", 9000, ["out_of_order_max_interval", "8192", "9000"]),
        ("name", "a/b", ["name", "expected", "'a/b'"]),
        ("incremental.lines", [], ["incremental.lines", "at least one line"]),
        ("incremental.lines", [{"name": "A"}], ["incremental.A", "`addresses`, found neither"]),
        ("wire.encodings", [], ["wire.encodings: expected at least 1, found []"]),
        (
            "incremental.lines",
            [{"name": "A", "address": "localhost:9001"}],
            ["ip:port", "localhost", "host names are not looked up"],
        ),
        (
            "incremental.lines",
            [{"name": "A", "address": "127.0.0.1:90010"}],
            ["'127.0.0.1:90010'; a port is a number from 1 to 65535"],
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
    with pytest.raises(ConfigError, match=r"none\.toml: .*no such file"):
        load_feed(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = \n")
    with pytest.raises(ConfigError, match=r"broken\.toml: expected TOML"):
        load_feed(broken)


def test_config_describe_lists_names_and_says_whether_other_values_may_stand_there():
    reasons = {
        setting.key: setting.reason for setting in describe(parse_feed(changed("window.size", 64)))
    }
    assert reasons["agent.idle"].endswith(" (one of spin, yield, backoff, sleep)")
    assert reasons["window.lost_packet_wait_us"].endswith(" (1 to 60,000,000, or auto)")


def test_config_describe_says_what_each_key_takes_by_the_conditions_that_it_is_refused_by():
    takes = {setting.key: setting.takes for setting in describe(example_feed())}
    for key, said in (
        ("name", NAME.expected),
        ("window.size", "16 to 1,073,741,824, a power of two"),
        ("record.segment_bytes", "262,144 to 1,073,741,824, a multiple of 4096"),
        ("image.enabled", "true or false"),
        ("agent.core", "0 to 8,191"),
        ("incremental.lines[0].senders", f"at most 64, each {SENDER.expected}"),
        ("incremental.use", f"at most 8, each {NAME.expected}; each once"),
        ("snapshot.lines", "at most 8 tables"),
        ("wire.encodings", "at least 1, each one of native, flatbuffers; each once"),
    ):
        assert takes[key] == said, key
    assert [key for key, said in takes.items() if not said] == []


def test_config_one_receive_buffer_is_the_default_of_all_who_ask_for_one():
    asked = parse_feed(changed("window.size", 64)).receive.rcvbuf_bytes
    assert asked == ReceiveOptions().rcvbuf_bytes == HostUse().rcvbuf_bytes


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


@pytest.mark.parametrize("kind", sorted(FILES))
def test_config_each_key_is_as_asked_for_or_refused_in_words(kind):
    wrong = [
        f"{key}: {found}"
        for key in keys_of(FILES[kind][1])
        for value in [*VALUES, *edges_of(key)]
        if (found := broken(kind, tables_with(kind, [(key, value)]), [key]))
    ]
    assert not wrong[:20]


def test_config_several_keys_at_once_are_as_asked_for_or_refused_in_words():
    for seed in range(2_000):
        trial(seed)


def test_config_edges_find_what_is_wrong(monkeypatch):
    key = next(key for key in keys_of(FILES["feed"][1]) if str(key) == "window.size")
    for words in ("window.size: no", "edges.toml: expected a number, found 1", "edges.toml: x"):

        def refuse(*_: object, words: str = words, **__: object) -> None:
            raise ConfigError(words)

        monkeypatch.setitem(FILES, "feed", (refuse, *FILES["feed"][1:]))
        assert broken("feed", {}, [key])
    half = parse_feed(changed("window.size", 16))
    monkeypatch.setitem(FILES, "feed", (lambda *_, **__: half, *FILES["feed"][1:]))
    assert broken("feed", changed("window.size", 32), [key]).startswith("window.size: 16 where 32")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'name = "a"\nname = "b"\n', "expected TOML, found an error"),
        (b"name = " + b"9" * 5000, "expected TOML, found an error"),
        (b"name = " + b"[" * 100_000, "expected TOML, found"),
        (b"\xff\xfe", "expected TOML, found an error"),
        (b"a\0b = 1", "expected TOML, found an error"),
        (b'name = "a"\n[image]\nenabled = True\n', "write true, not True"),
        (b"loop = FALSE\n", "write false, not FALSE"),
        (b"interface = None\n", "leave the key out instead of None"),
        (b"# " + b"x" * (1 << 20), "expected at most 1048576 bytes of TOML, found more"),
        (b"", "name: expected a value, found none"),
        (b"name = 2026-13-45", "expected TOML, found an error"),
        (b"name = nan", "name: expected text, found nan; write it in quotes"),
        (b"name = A\n", '(at line 1, column 8); write text in quotes: name = "A"'),
        (b"address = 127.0.0.1:9001 # A\n", 'in quotes: address = "127.0.0.1:9001"'),
        (b'name = "a\n', "a text must end with a quote on its own line"),
    ],
)
def test_config_file_that_is_none_is_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "feed.toml"
    path.write_bytes(content)
    for load in (load_feed, load_publish):
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    assert words in str(refusal(load_feed, path))


def refusal(load, path):
    """Return the error with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value


def test_config_path_that_is_no_file_is_refused_in_one_line(tmp_path):
    secret = tmp_path / "secret.toml"
    secret.write_text('name = "x"')
    secret.chmod(0)
    paths = [tmp_path, "/dev/zero", "a\0b", "x" * 5000, tmp_path / "feed.toml" / "x", ""]
    for path in paths + [secret] * (os.geteuid() != 0):
        message = str(refusal(load_feed, path))
        assert "expected" in message
        assert "found" in message
        assert message.isprintable()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "."),
        ("name", ".."),
        ("name", "a\n"),
        ("incremental.lines", [LINE | {"address": "127.0.0.1:" + "9" * 5000}]),
        ("incremental.lines", [LINE | {"address": "127.0.0.1:\u0661"}]),
        ("incremental.lines", [LINE | {"address": "[fe80::1%a/b]:1"}]),
        ("incremental.lines", [LINE | {"interface": "an interface"}]),
        ("incremental.lines", [LINE | {"senders": ["1.2.3.4:99999"]}]),
        ("incremental.lines", [LINE | {"senders": ["1.2.3.4"] * 65}]),
        ("incremental.lines", [LINE | {"senders": ["1.2.3.4:0"]}]),
        ("incremental.lines", [LINE | {"source": "10.0.0.1"}]),
        ("incremental.lines", [{"name": "A", "address": "239.1.1.1:1", "source": "0.0.0.0"}]),
        (
            "incremental.lines",
            [{"name": "A", "address": "[::1]:1"}, {"name": "B", "address": "[0::1]:1"}],
        ),
        ("incremental.lines", [{"name": "A", "address": "239.1.1.1:1", "source": "::1"}]),
        ("relay.lines", [RELAYED | {"parity": 1}]),
        ("relay.lines", [RELAYED | {"parity": 33}]),
        ("relay.lines", [RELAYED | {"parity": -1}]),
        ("zmq.addresses", ["tcp://0.0.0.0:99999"]),
        ("zmq.addresses", ["tcp://0.0.0.0:65536"]),
        ("zmq.addresses", ["tcp://0.0.0.0:0"]),
        ("zmq.addresses", ["tcp://0.0.0.0:" + "9" * 5000]),
        ("zmq.addresses", ["ipc", "ipc"]),
        ("zmq.addresses", ["ipc://" + "a" * 108]),
        ("zmq.addresses", ["ipc://a\n"]),
        ("record.directory", "\0"),
        ("record.directory", ".."),
        ("record.directory", "a b"),
        ("record.directory", "a" * 256),
        ("record.segment_bytes", (1 << 18) + 1),
        ("run.restart_first_ms", 20_000),
        ("agent.core", 10**9),
        ("xdp.queues", [0, 0]),
        ("access.group", "-1"),
        ("access.group", "4294967295"),
    ],
)
def test_config_value_at_its_edge_is_refused(path, value):
    with pytest.raises(ConfigError):
        parse_feed(changed(path, value))


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_config_destination_without_a_port_is_refused(port):
    with pytest.raises(ConfigError, match="with a port from 1 to 65535"):
        parse_publish({"incremental": [{"address": f"127.0.0.1:{port}"}]})
    parse_publish({"incremental": [{"address": "127.0.0.1:65535"}]})
    parse_feed(changed("incremental.lines", [LINE | {"address": "127.0.0.1:0"}]))


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ({"incremental": "127.0.0.1:9001"}, True),
        ({"incremental": "127.0.0.1:9000"}, True),  # its snapshots go to the next port
        ({"incremental": "127.0.0.2:9001"}, False),
        ({"incremental": "239.1.1.1:9001", "loop": True}, True),
        ({"incremental": "239.1.1.1:9001", "loop": False}, False),
        ({"incremental": "239.1.1.1:9001", "loop": True, "interface": "eth9"}, False),
    ],
)
def test_relay_that_sends_to_its_own_feed_is_refused(
    line: dict[str, object], refused: bool
) -> None:
    lines = [
        {"name": "A", "address": "127.0.0.1:9001"},
        {"name": "B", "address": "239.1.1.1:9001", "interface": "lo"},
    ]
    tables = {
        "name": "test",
        "incremental": {"lines": lines},
        "relay": {"enabled": True, "lines": [{"name": "far", **line}]},
    }
    if refused:
        with pytest.raises(ConfigError, match="that this feed does not receive for far"):
            parse_feed(tables)
    else:
        parse_feed(tables)
