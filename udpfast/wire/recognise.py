"""Recognise the framing of a capture by its content."""

from collections.abc import Hashable, Iterable

from msgspec import Struct

from udpfast.wire.facts import FACTS, FramingFacts, Numbers
from udpfast.wire.framing import Framing, MalformedError, ParsedUnit, UnitFlag

__all__ = ["Candidate", "Recognition", "recognise"]

#: Most datagrams examined: about those of one second of a slow feed.
DATAGRAMS_MAX = 500

#: Least fraction of sound datagrams: a capture may have damage, and datagrams of other sources.
_SOUND_MIN = 0.9

#: Evidence of a number that follows the one before it: random numbers rarely do.
_FOLLOWS_BITS = 24

#: Most evidence of a datagram without messages, which only has the size of a header.
_SIZE_BITS = 16

#: The second best framing must have less than this fraction of the best one's evidence.
_CLEAR = 0.75


class Candidate(Struct, frozen=True):
    """A framing that a capture may have.

    Attributes
    ----------
    name : str
        Name of the framing.
    sound : int
        Number of datagrams that are sound in it.
    following : int
        Number of units whose number follows that of the unit before.
    bits : float
        Bits of evidence per datagram.
    """

    name: str
    sound: int
    following: int
    bits: float


class Recognition(Struct, frozen=True):
    """The result of `recognise`.

    Attributes
    ----------
    name : str or None
        The framing; None if none fits, or if several fit equally well.
    why : str
        A sentence with the evidence for it, or with the framings that cannot be told apart.
    candidates : tuple of Candidate
        All framings that fit, the most likely one first.
    """

    name: str | None
    why: str
    candidates: tuple[Candidate, ...]


def recognise(datagrams: Iterable[tuple[Hashable, bytes]]) -> Recognition:
    """Recognise the framing of a capture by its first datagrams.

    A framing fits if nine of ten datagrams are sound in it. Among those that fit, the evidence
    decides: the bits that a sound datagram fixes, and how often a number follows the one before.
    The revisions of Roq cannot be told apart; the current one is returned.

    Parameters
    ----------
    datagrams : iterable of tuple
        `(flow, payload)` in the order of arrival. `flow` is any key that tells flows apart, such
        as the destination.
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
    # A datagram without messages only proves that it has the size of a header. If the header has no
    # count of messages either, any datagram of that size is sound.
    if not facts.delimited or any(unit.messages for unit in units):
        return facts.proof_bits
    return 0 if facts.numbers is Numbers.DATAGRAMS else min(facts.proof_bits, _SIZE_BITS)
