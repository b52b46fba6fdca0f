"""Which framing a capture has, told by its content."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from udpfast.wire.facts import FACTS, FramingFacts, Numbers
from udpfast.wire.framing import Framing, MalformedError, ParsedUnit, UnitFlag

__all__ = ["Candidate", "Recognition", "recognise"]

#: Datagrams that are looked at: what a second of a slow feed brings.
DATAGRAMS_MAX = 500

#: A capture may hold damage, and datagrams of something else.
_SOUND_MIN = 0.9

#: A number that follows the one before: as many bits as random numbers would have to agree in.
_FOLLOWS_BITS = 24

#: A datagram without messages: that it has the size of a header.
_SIZE_BITS = 16

#: The next best must have less than this part of the evidence.
_CLEAR = 0.75


@dataclass(frozen=True, slots=True)
class Candidate:
    """A framing that a capture may have.

    Attributes
    ----------
    name : str
        Of the framing.
    sound : int
        Datagrams that are sound in it.
    following : int
        Units whose number is the one that came next.
    bits : float
        Evidence per datagram.
    """

    name: str
    sound: int
    following: int
    bits: float


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was recognised.

    Attributes
    ----------
    name : str or None
        The framing; None where nothing fits, or where more than one does.
    why : str
        A sentence: what speaks for it, or between which it cannot be told.
    candidates : tuple of Candidate
        All that fit, the likeliest first.
    """

    name: str | None
    why: str
    candidates: tuple[Candidate, ...]


def recognise(datagrams: Iterable[tuple[Hashable, bytes]]) -> Recognition:
    """Tell the framing of a capture by its first datagrams.

    A framing fits if nine of ten datagrams are sound in it. Between those that fit, the evidence
    decides: how many bits a sound datagram fixes, and how often a number is the one that came next.
    Which revision of Roq it is cannot be told; the current one is named.

    Parameters
    ----------
    datagrams : iterable of tuple
        `(flow, payload)` in the order of arrival; what `flow` is does not matter, as long as it
        tells flows apart: the destination, say.
    """
    sample = [entry for _, entry in zip(range(DATAGRAMS_MAX), datagrams, strict=False)]
    if not sample:
        return Recognition(None, "there are no datagrams", ())
    names = [facts.name for facts in FACTS if "legacy" not in facts.name]
    found = [candidate for name in names if (candidate := _examine(name, sample)) is not None]
    found.sort(key=lambda candidate: -candidate.bits)
    if not found:
        return Recognition(None, f"no framing fits nine in ten of {len(sample)} datagrams", ())
    best = found[0]
    rivals = [one.name for one in found[1:] if one.bits >= _CLEAR * best.bits]
    if rivals:
        names_text = " or ".join([best.name, *rivals])
        return Recognition(
            None,
            f"it may be {names_text}: {len(sample)} datagrams are not enough to tell",
            tuple(found),
        )
    why = (
        f"{best.sound} of {len(sample)} datagrams are valid, and {best.following} numbers "
        "follow each other"
    )
    return Recognition(best.name, why, tuple(found))


def _examine(name: str, sample: list[tuple[Hashable, bytes]]) -> Candidate | None:
    framing = Framing(name)
    expected: dict[tuple[Hashable, int, int], int] = {}
    sound = following = bits = 0
    for place, (flow, payload) in enumerate(sample):
        if place - sound > len(sample) * (1 - _SOUND_MIN):
            return None
        try:
            units = framing.units(payload)
        except MalformedError:
            continue
        sound += 1
        bits += _proof_bits(framing.facts, units)
        for unit in units:
            if unit.flags & UnitFlag.UNSEQUENCED:
                continue
            key = (flow, unit.stream, unit.session)
            following += expected.get(key) == unit.number and unit.fragments == 1
            expected[key] = unit.number + unit.count
    if sound < _SOUND_MIN * len(sample):
        return None
    bits += following * _FOLLOWS_BITS
    return Candidate(name, sound, following, bits / len(sample))


def _proof_bits(facts: FramingFacts, units: list[ParsedUnit]) -> int:
    # Without messages a datagram only says that it has the size of a header; if the header does not
    # even count them, any datagram of that size is sound.
    if not facts.delimited or any(unit.messages for unit in units):
        return facts.proof_bits
    return 0 if facts.numbers is Numbers.DATAGRAMS else min(facts.proof_bits, _SIZE_BITS)
