"""bus.toml: files are read, or refused with what was expected and what was found."""

from pathlib import Path

import pytest

from udpfast.bus.wire import name_bytes
from udpfast.config import describe
from udpfast.config.bus import BusConfig, bus_keys, load_bus, parse_bus
from udpfast.errors import ConfigError

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3"}


def bus(**store):
    store = {"sequencer": "S", "replicas": ["one", "two"], "port": 9400, **store}
    return parse_bus({"hosts": HOSTS, "stores": {"orders": store}}, "bus.toml")


def test_store_says_who_copies_from_whom() -> None:
    store = bus(sources={"two": "one"}).stores["orders"]
    assert store.hosts == ("S", "one", "two")
    assert store.standbys("S") == ("one",)
    assert store.standbys("one") == ("S", "two")
    assert store.followers("one") == ("two",)
    assert store.source("two") == "one"


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (
            {"sequencer": "x"},
            r"orders.sequencer: expected a host of this file \(S, one, two\), found 'x'",
        ),
        (
            {"replicas": ["one", "x"]},
            r"orders.replicas: expected a host of this file .*, found 'x'",
        ),
        ({"replicas": ["one", "S"]}, r"orders.replicas: expected each host once"),
        (
            {"sources": {"one": "S"}},
            r"orders.sources: expected two different replicas, found 'one' copying",
        ),
        ({"sources": {"one": "two", "two": "one"}}, r"found a loop: one from two"),
        ({"gate": 3}, r"orders.gate: expected at most 2"),
        ({"release": 3}, r"orders.release: expected disk, all, or at most 2"),
        ({"release": 0}, r"orders.release: expected .* >= 1, found 0"),
        ({"release": "none"}, "expected 1 to 64, or one of disk, all, found 'none'"),
        ({"port": 0}, r"port"),
        ({"gates": 1}, r"gates"),
        ({"sequencer": ["S", "one"]}, r"orders.sequencer: expected one host, found \['S', 'one'\]"),
        (
            {"keep_for": ["x"]},
            r"orders.keep_for: expected hosts of this store \(S, one, two\), found 'x'",
        ),
        (
            {"keep_segments": 5, "keep_most": 4},
            r"orders.keep_most: .*found 4 with keep_segments = 5",
        ),
        ({"keep_most": 4}, r"orders.keep_most: .*found 4 with keep_segments = 0"),
    ],
)
def test_store_wrong_is_refused(store, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bus(**store)


def test_hosts_and_ports_must_be_addresses_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"hosts.S: .*'here'"):
        parse_bus({"hosts": {"S": "here"}, "stores": {"a": {"sequencer": "S", "port": 1}}})
    stores = {name: {"sequencer": "S", "port": 9400} for name in "ab"}
    with pytest.raises(
        ConfigError,
        match=r"stores.b.port: .* 9400",
    ):
        parse_bus({"hosts": HOSTS, "stores": stores})
    hosts = {"S": "127.0.0.1", "one": "127.0.0.1"}
    store = {"sequencer": "S", "replicas": ["one"], "port": 9400}
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1 for S and one"):
        parse_bus({"hosts": hosts, "stores": {"a": store}})


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "x" * 33, "a b", "é"])
@pytest.mark.parametrize("table", ["stores", "composites", "hosts"])
def test_name_that_no_address_can_have_is_refused(name: str, table: str) -> None:
    tables = {
        "hosts": {"S": "127.0.0.1"},
        "stores": {"orders": {"sequencer": "S", "port": 1}},
        "composites": {"all": {"inputs": ["orders"], "host": "S", "port": 2}},
    }
    first = next(iter(tables[table]))
    tables[table] = {name if each == first else each: at for each, at in tables[table].items()}
    with pytest.raises(ConfigError) as found:
        parse_bus(tables, "bus.toml")
    assert str(found.value).startswith(f"bus.toml: {table}: expected 1 to 3")
    assert str(found.value).endswith(f"found {name!r}")


def test_host_has_at_most_the_name_that_links_can_say() -> None:
    for size in (31, 32):
        name = "h" * size
        tables = {"hosts": {name: "::1"}, "stores": {"a": {"sequencer": name, "port": 1}}}
        if size == 31:
            assert len(name_bytes(next(iter(parse_bus(tables).hosts)))) == 32
        else:
            with pytest.raises(ConfigError, match="hosts: expected 1 to 31 characters of"):
                parse_bus(tables)


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "239.1.1.1", "ff02::1", "255.255.255.255", "::ffff:1.2.3.4"]
)
def test_address_of_no_host_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts.S: .*address of one host"):
        parse_bus({"hosts": {"S": address}, "stores": {"a": {"sequencer": "S", "port": 1}}})


def test_addresses_of_a_store_are_of_one_kind_and_differ_however_they_are_spelled() -> None:
    store = {"sequencer": "S", "replicas": ["one"], "port": 9400}
    with pytest.raises(ConfigError, match=r"one kind.* 127\.0\.0\.1, ::1"):
        parse_bus({"hosts": {"S": "127.0.0.1", "one": "::1"}, "stores": {"a": store}})
    with pytest.raises(ConfigError, match="its own address, found ::1 for S and one"):
        parse_bus({"hosts": {"S": "::1", "one": "0::0:1"}, "stores": {"a": store}})
    stores = {"a": {"sequencer": "S", "port": 1}, "b": {"sequencer": "one", "port": 2}}
    assert parse_bus({"hosts": {"S": "127.0.0.1", "one": "0::1"}, "stores": stores}).hosts == {
        "S": "127.0.0.1",
        "one": "::1",
    }


def test_error_names_the_store_that_it_is_about() -> None:
    good, bad = {"sequencer": "S", "port": 9400}, {"sequencer": "S", "port": 70_000}
    for stores in ({"a": good, "b": bad}, {"a": bad, "b": good}):
        (name,) = (name for name, store in stores.items() if store is bad)
        with pytest.raises(ConfigError, match=rf"stores\.{name}\.port: .*, found 70000"):
            parse_bus({"hosts": HOSTS, "stores": stores})
    with pytest.raises(ConfigError, match=r'stores\."a\.b"\.port: .*, found 70000'):
        parse_bus({"hosts": HOSTS, "stores": {"a": good, "a.b": bad}})
    composite = {"inputs": ["a"], "host": "S", "port": 2, "gate": 1}
    with pytest.raises(ConfigError, match=r"unknown one; did you mean stores\.NAME\.gate\?$"):
        parse_bus({"hosts": HOSTS, "stores": {"a": good}, "composites": {"all": composite}})
    stores = {"a": {**good, "sources": {"one": "two", "two": 3}}}
    with pytest.raises(ConfigError, match=r"stores\.a\.sources\.two: expected text, found 3"):
        parse_bus({"hosts": HOSTS, "stores": stores})
    stores = {"a": {**good, "replicas": "one"}}
    with pytest.raises(ConfigError, match=r"replicas: expected an array, found 'one'; write \["):
        parse_bus({"hosts": HOSTS, "stores": stores})


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ({"idle": "never"}, r"links.idle: .*'never'"),
        (
            {"cores": {"x": [1]}},
            r"links.cores: expected hosts of this file \(S, one, two\), found 'x'",
        ),
        ({"cores": {"S": [-1]}}, r"links.cores"),
        ({"cores": {"S": 2}}, r"links.cores"),
    ],
)
def test_threads_of_links_wrong_are_refused(links, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_bus(
            {
                "hosts": HOSTS,
                "links": links,
                "stores": {"a": {"sequencer": "S", "port": 1}},
            },
            "bus.toml",
        )


def written(tmp_path: Path, keys: str, mode: int = 0o600) -> BusConfig:
    path = tmp_path / "bus.key"
    path.write_text(keys)
    path.chmod(mode)
    (tmp_path / "bus.toml").write_text(
        'key_file = "bus.key"\n[hosts]\nS = "127.0.0.1"\n'
        '[stores.orders]\nsequencer = "S"\nport = 9400\n'
    )
    return load_bus(tmp_path / "bus.toml")


def test_keys_lie_beside_the_file_that_names_them(tmp_path: Path) -> None:
    config = written(tmp_path, "ab" * 32 + "\n" + "cd" * 40 + "\n")
    assert bus_keys(config) == [b"\xab" * 32, b"\xcd" * 40]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=rf"chmod 600.* mode {mode:o}"):
        bus_keys(written(tmp_path, "ab" * 32, mode))


@pytest.mark.parametrize("keys", ["", "ab", "zz" * 32, " ".join(["ab" * 32] * 3)])
def test_keys_that_are_none_are_refused(tmp_path: Path, keys: str) -> None:
    with pytest.raises(ConfigError, match="64 hexadecimal"):
        bus_keys(written(tmp_path, keys))


def test_key_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, "ab" * 32)
    (tmp_path / "bus.key").unlink()
    with pytest.raises(ConfigError, match=r"key_file: expected a readable file.*bus\.key"):
        bus_keys(config)


def test_byte_order_mark_of_an_editor_is_no_error(tmp_path: Path) -> None:
    config = written(tmp_path, "ab" * 32)
    path = tmp_path / "bus.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_bus(path) == config


def test_keys_of_a_store_are_described_with_what_is_set_and_what_they_take():
    described = {each.key: each for each in describe(bus(sources={"two": "one"}).stores["orders"])}
    assert not described["port"].is_default and not described["sources"].is_default
    plain = {each.key: each for each in describe(bus().stores["orders"])}
    assert plain["sources"].is_default and plain["gate"].is_default
    assert plain["release"].takes == "1 to 64, or one of disk, all"
