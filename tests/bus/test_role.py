"""A node has one role at a time; after a failed promotion it has its old role again."""

import pytest

from tests.bus.drive import MS, S
from tests.bus.test_creation import IDENTITY, NOTHING, Host
from udpfast.bus.role import AFTER, Event, Role


def test_host_that_waits_to_begin_does_so_again_when_its_promotion_fails() -> None:
    host = Host()
    assert host.node.role is Role.BEGINNING
    host.node.promote(host.now_ns)
    assert host.node.role is Role.PROMOTING
    host.work(3 * S)
    assert "not promoted" in host.node.outcome[0]
    assert host.node.role is Role.BEGINNING
    host.has.update(one=NOTHING, two=NOTHING)
    for _ in range(10):
        host.work(S)
    assert host.node.role is Role.SEQUENCING


def test_host_named_with_a_feed_is_fed_and_alone_writes() -> None:
    assert Host(()).node.role is Role.SEQUENCING
    assert Host((), feeds=True).node.role is Role.FED
    assert Host(named=False).node.role is Role.FOLLOWING


def test_writer_that_hears_of_another_one_follows() -> None:
    host = Host(("one",), identity=IDENTITY)
    host.has["one"] = IDENTITY
    host.node.write_on(0, 0)
    host.node.store.fence(host.node.store.promised + (9 << 40))
    assert host.work(MS).node.role is Role.FOLLOWING


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.FED])
def test_every_role_can_be_promoted_and_write(role: Role) -> None:
    assert AFTER[role][Event.PROMOTED] is Role.PROMOTING
    assert AFTER[role][Event.WRITES] is Role.SEQUENCING
