"""Every framing: messages are read as they were sent; invalid ones are refused with a reason."""

import random
from itertools import pairwise

import pytest

from lab.framings import Sent, build, draw
from lab.fuzz_wire import fuzz_wire
from udpfast.errors import ConfigError, FormatError
from udpfast.wire.facts import FACTS, Heartbeat, Numbers, session_text
from udpfast.wire.framing import FRAMINGS, Framing, Malformed, MalformedError, UnitFlag

SEEDS = range(60)

#: Framings whose datagrams have their length in the header, or are full of messages.
MEASURED = [name for name in FRAMINGS if not name.startswith("roq")]


def reason(name: str, datagram: bytes) -> Malformed:
    with pytest.raises(MalformedError) as caught:
        Framing(name).units(datagram)
    with pytest.raises(MalformedError):
        Framing(name).messages(datagram)
    return caught.value.reason


def test_framing_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match=r"one of roq, roq_big.*, was 'itch'"):
        Framing("itch")


def test_facts_names_are_those_of_the_builders() -> None:
    assert tuple(facts.name for facts in FACTS) == FRAMINGS
    for name in FRAMINGS:
        assert build(name, draw(name, random.Random(1)))


@pytest.mark.parametrize("name", FRAMINGS)
def test_units_of_what_was_sent_say_the_same(name: str) -> None:
    framing = Framing(name)
    for seed in SEEDS:
        sent = draw(name, random.Random(seed))
        datagram = build(name, sent)
        units = framing.units(datagram)
        count = len(sent.messages)
        if framing.facts.numbers is Numbers.DATAGRAMS:
            count = 1
        assert sum(unit.count for unit in units) == count
        assert units[0].number == sent.number
        assert (units[0].fragment, units[0].fragments) == (0, 1)
        assert bool(units[0].flags & UnitFlag.HEARTBEAT) == (
            not sent.messages and name not in ("cme_mdp3", "coinbase_derivatives", "eurex_eobi")
        )
        for before, unit in pairwise(units):
            assert unit.number == (before.number + before.count) % 2**64
        if units[0].sent_ns:
            assert abs(units[0].sent_ns - sent.sent_ns) < 10**6
        if sent.stream:
            assert str(sent.stream[-1]) in framing.label(units[0]) or name == "siac_cta"


@pytest.mark.parametrize("name", FRAMINGS)
def test_messages_of_what_was_sent_are_these_with_their_numbers(name: str) -> None:
    framing = Framing(name)
    each = framing.facts.numbers is Numbers.MESSAGES
    for seed in SEEDS:
        sent = draw(name, random.Random(seed), heartbeats=False)
        found = framing.messages(build(name, sent))
        assert len(found) == len(sent.messages)
        for place, (message, content) in enumerate(zip(found, sent.messages, strict=True)):
            assert message.data.rstrip(b"\0").endswith(content.rstrip(b"\0"))
            assert message.number == (sent.number + place if each else sent.number)


@pytest.mark.parametrize("name", MEASURED)
def test_units_of_every_cut_are_refused(name: str) -> None:
    # A cut between two messages of a datagram without a count cannot be detected.
    framing = Framing(name)
    sent = Sent(7, (b"abcd", b"efgh"), *KEYS.get(name, ()))
    datagram = build(name, sent if framing.facts.delimited else Sent(7, (b"abcd",), *KEYS[name]))
    whole = {len(datagram)}
    if name in ("cme_mdp3", "b3_umdf", "eurex_eobi", "miax_mach"):
        header = len(datagram) - 2 * (len(datagram) - len(build(name, one(name))))
        whole |= {header, len(build(name, one(name)))}
    for size in range(len(datagram) + 1):
        if size not in whole:
            assert reason(name, datagram[:size]) in Malformed
    assert framing.units(datagram)


@pytest.mark.parametrize("name", MEASURED)
def test_units_of_a_longer_datagram_are_refused(name: str) -> None:
    datagram = build(name, one(name)) + b"\xff\xff"
    assert reason(name, datagram) in (
        Malformed.LENGTH_BELOW,
        Malformed.COUNT_AND_BYTES,
        Malformed.MESSAGE_BEYOND,
        Malformed.HEADER_SHORT,
    )


#: Stream and session of each framing: random ones of the builder, or the venue's own.
KEYS: dict[str, tuple[tuple[int, ...], int | bytes]] = {
    name: (sent.stream, sent.session)
    for name, sent in ((name, draw(name, random.Random(1))) for name in FRAMINGS)
} | {
    "moldudp64": ((), b"SESSION 01"),
    "moldudp64le": ((), b"SESSION 01"),
    "iex_tp": ((0x8004, 1), 99),
    "deribit_sbe": ((3,), 0),
    "cboe_pitch": ((1,), 0),
    "miax_mach": ((), 1),
    "siac_cta": ((84,), 0),
    "siac_opra": ((), 0),
    "b3_umdf": ((50,), 1333),
    "coinbase_derivatives": ((44849,), 0),
    "eurex_eobi": ((3, 675), 0),
}


def one(name: str) -> Sent:
    return Sent(7, (b"abcd",), *KEYS.get(name, ()))


@pytest.mark.parametrize("name", FRAMINGS)
def test_units_of_nothing_are_refused(name: str) -> None:
    assert reason(name, b"") is Malformed.HEADER_SHORT


@pytest.mark.parametrize("name", FRAMINGS)
def test_units_of_more_than_udp_holds_are_refused(name: str) -> None:
    assert reason(name, bytes(65_528)) is Malformed.TOO_LONG


def changed(name: str, sent: Sent, place: int, value: bytes) -> bytes:
    datagram = build(name, sent)
    return datagram[:place] + value + datagram[place + len(value) :]


@pytest.mark.parametrize(
    ("name", "place", "value", "expected"),
    [
        ("iex_tp", 0, b"\2", Malformed.VERSION),
        ("iex_tp", 12, b"\xff\0", Malformed.LENGTH_BEYOND),
        ("iex_tp", 12, b"\1\0", Malformed.LENGTH_BELOW),
        ("iex_tp", 14, b"\2\0", Malformed.MESSAGE_BEYOND),
        ("iex_tp", 14, b"\0\0", Malformed.COUNT_AND_BYTES),
        ("iex_tp", 6, b"\1", Malformed.RANGE),
        ("iex_tp", 40, b"\5\0", Malformed.MESSAGE_BEYOND),
        ("iex_tp", 40, b"\3\0", Malformed.COUNT_AND_BYTES),
        ("moldudp64", 18, b"\xff\xff", Malformed.COUNT_AND_BYTES),
        ("cme_mdp3", 12, b"\0\0", Malformed.MESSAGE_SHORT),
        ("cme_mdp3", 12, b"\xff\xff", Malformed.MESSAGE_BEYOND),
        ("cboe_pitch", 0, b"\0\0", Malformed.LENGTH_BELOW),
        ("cboe_pitch", 8, b"\0", Malformed.MESSAGE_SHORT),
        ("miax_mach", 8, b"\0\0", Malformed.LENGTH_BELOW),
        ("miax_mach", 8, b"\xff\0", Malformed.LENGTH_BEYOND),
        ("miax_mach", 10, b"\4", Malformed.KIND),
        ("nyse_xdp", 2, b"\2", Malformed.KIND),
        ("nyse_xdp", 2, b"\x16", Malformed.KIND),
        ("cboe_csm", 0, b"\0", Malformed.VERSION),
        ("memx_memoir", 0, b"\3", Malformed.KIND),
        ("memx_memoir", 0, b"\0", Malformed.COUNT_AND_BYTES),
        ("memx_memoir", 1, b"\x13", Malformed.VERSION),
        ("siac_opra", 3, b"Q", Malformed.VERSION),
        ("b3_umdf", 18, b"\0", Malformed.VERSION),
        ("coinbase_derivatives", 18, b"\0", Malformed.KIND),
        ("coinbase_derivatives", 18, b"\x08", Malformed.KIND),
        ("eurex_eobi", 0, b"\x21", Malformed.VERSION),
        ("eurex_eobi", 2, b"\xc9", Malformed.VERSION),
        ("eurex_eobi", 15, b"\1", Malformed.RANGE),
    ],
)
def test_units_with_a_wrong_field_are_refused_for_it(
    name: str, place: int, value: bytes, expected: Malformed
) -> None:
    assert reason(name, changed(name, one(name), place, value)) is expected


def test_error_says_framing_size_and_reason() -> None:
    with pytest.raises(FormatError, match=r"of iex_tp \(3 bytes\): it ends inside its header"):
        Framing("iex_tp").units(b"\1\0\0")


@pytest.mark.parametrize(
    ("name", "place", "value", "flags"),
    [
        ("nyse_xdp", 2, b"\x0c", UnitFlag.RESET),
        ("nyse_xdp", 2, b"\x0d", UnitFlag.RETRANSMISSION),
        ("nyse_xdp", 2, b"\x11", UnitFlag.SNAPSHOT),
        ("nyse_xdp", 2, b"\x14", UnitFlag.SNAPSHOT),
        ("cme_mdp3", 16, b"\4", UnitFlag.RESET),
        ("eurex_eobi", 18, b"\1", UnitFlag.RESET),
        ("cboe_pitch", 4, bytes(4), UnitFlag.UNSEQUENCED),
        ("b3_umdf", 4, bytes(4), UnitFlag.UNSEQUENCED),
        ("coinbase_derivatives", 18, b"\2", UnitFlag.SNAPSHOT | UnitFlag.UNSEQUENCED),
        ("coinbase_derivatives", 18, b"\5", UnitFlag.RETRANSMISSION),
        ("siac_cta", 4, b"V", UnitFlag.RETRANSMISSION),
        ("siac_cta", 22, b"CL", UnitFlag.RESET),
        ("siac_cta", 22, b"CT", UnitFlag.HEARTBEAT | UnitFlag.UNSEQUENCED),
        ("siac_opra", 4, b"V", UnitFlag.RETRANSMISSION),
    ],
)
def test_units_tell_resets_snapshots_and_retransmissions(
    name: str, place: int, value: bytes, flags: UnitFlag
) -> None:
    (unit,) = Framing(name).units(changed(name, one(name), place, value))
    assert unit.flags == flags
    assert Framing(name).units(build(name, one(name)))[0].flags == 0


@pytest.mark.parametrize("name", ["moldudp64", "moldudp64le"])
def test_units_of_a_session_that_ended_name_the_next_number(name: str) -> None:
    datagram = changed(name, Sent(7, (), *KEYS[name]), 18, b"\xff\xff")
    (unit,) = Framing(name).units(datagram)
    assert (unit.number, unit.count, unit.flags) == (7, 0, UnitFlag.END_OF_SESSION)


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        (0, UnitFlag.HEARTBEAT),
        (1, UnitFlag.START_OF_SESSION),
        (2, UnitFlag.END_OF_SESSION),
    ],
)
def test_units_of_miax_without_a_number_name_the_next_one(kind: int, flags: UnitFlag) -> None:
    # On the wire it is the last one.
    datagram = (41).to_bytes(8, "little") + bytes((12, 0, kind, 1))
    (unit,) = Framing("miax_mach").units(datagram)
    assert (unit.number, unit.count, unit.flags) == (42, 0, flags)
    assert Framing("miax_mach").facts.heartbeat is Heartbeat.LAST


def test_units_of_miax_with_damage_behind_a_whole_one_are_none() -> None:
    datagram = build("miax_mach", Sent(7, (b"abcd", b"efgh"), (), 1))
    assert len(Framing("miax_mach").units(datagram)) == 2
    assert reason("miax_mach", datagram[:-1]) is Malformed.LENGTH_BEYOND


def test_units_of_miax_in_a_jumbo_datagram_have_room() -> None:
    sent = Sent(1, tuple(b"" for _ in range(5000)), (), 1)
    assert len(Framing("miax_mach").units(build("miax_mach", sent))) == 5000


def test_messages_without_content_have_numbers_too() -> None:
    datagram = build("moldudp64", Sent(5, (b"", b"x", b""), (), b"SESSION 01"))
    assert Framing("moldudp64").messages(datagram) == [(5, b""), (6, b"x"), (7, b"")]


def mold_session(text: bytes) -> int:
    (unit,) = Framing("moldudp64").units(build("moldudp64", Sent(1, (), (), text)))
    return unit.session


def test_session_of_ten_characters_is_read_back() -> None:
    rng = random.Random(5)
    for _ in range(500):
        text = bytes(rng.randint(0x20, 0x5F) for _ in range(10))
        assert session_text(mold_session(text)) == text.decode()
    assert mold_session(b" " * 10) == 0
    assert mold_session(b"000010059D") < 1 << 60


def test_session_of_other_bytes_is_a_number_of_its_own() -> None:
    rng = random.Random(6)
    texts = {bytes(rng.randint(0, 255) for _ in range(10)) for _ in range(2000)}
    texts |= {b"session0" + bytes((48 + i, 48 + j)) for i in range(10) for j in range(10)}
    texts |= {bytes(place) + b"x" + bytes(9 - place) for place in range(10)}
    assert len({mold_session(text) for text in texts}) == len(texts)
    assert session_text(mold_session(b"session001")).startswith("#f")


def test_session_and_stream_of_iex_are_told_apart() -> None:
    (unit,) = Framing("iex_tp").units(build("iex_tp", Sent(3, (b"S",), (0x8004, 1), 99)))
    assert Framing("iex_tp").label(unit) == "8004/1/99"
    assert unit.detail == 2  # the stream offset


@pytest.mark.parametrize("flag", ["", "_big", "_legacy", "_legacy_big"])
def test_units_of_roq_fragments_say_which_of_how_many(flag: str) -> None:
    header = bytearray(build("roq" + flag, Sent(9, (bytes(512),))))
    header[1:3] = 1, 3
    (unit,) = Framing("roq" + flag).units(bytes(header))
    assert (unit.fragment, unit.fragments, unit.number, unit.detail & 0xFFFFFFFF) == (1, 4, 9, 5)
    assert unit.object == 3 << 16 | 77
    assert reason("roq" + flag, bytes(header[:-1])) is Malformed.FRAGMENT_SHORT
    header[2] = 0
    assert reason("roq" + flag, bytes(header)) is Malformed.FRAGMENT_BEYOND
    assert reason("roq" + flag, bytes(header) + b"x") is Malformed.TOO_LONG


@pytest.mark.parametrize("name", FRAMINGS)
def test_damaged_datagrams_are_refused_or_sound_and_nothing_behind_them_is_read(name: str) -> None:
    outcomes = fuzz_wire(11, 1_500, name)
    assert sum(outcomes.values()) == 1_500
    assert outcomes["sound"] > 150
    assert len(outcomes) > 2


def test_units_of_miax_without_content_take_their_number() -> None:
    datagram = build("miax_mach", Sent(7, (b"",), (), 1))
    (unit,) = Framing("miax_mach").units(datagram)
    assert (unit.number, unit.count, unit.messages) == (7, 1, 0)
    assert Framing("miax_mach").messages(datagram) == []
