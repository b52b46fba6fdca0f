"""What the log says of a loop that stood still."""

from udpfast.monitor.stalls import Stalls

S = 1_000_000_000


def counted(stalls: int, stalled_ms: int, drops: int) -> dict[str, dict[str, int]]:
    return {
        "feed": {"stalls": stalls, "stalled_ns": stalled_ms * 1_000_000},
        "incremental": {},
        "incremental.A": {"kernel_drops": drops},
        "incremental.B": {"kernel_drops": drops},
    }


def test_stall_is_said_once_with_what_the_kernel_dropped_until_the_sockets_were_read() -> None:
    watch = Stalls()
    assert list(watch.look(counted(0, 0, 5), 0)) == []
    assert list(watch.look(counted(1, 12_300, 5), S)) == []
    (said,) = watch.look(counted(1, 12_300, 40), 2 * S)
    assert said.startswith("the loop stood still for 12.3 s: ")
    assert said.endswith("the kernel dropped 70 datagrams meanwhile")
    assert list(watch.look(counted(1, 12_300, 90), 3 * S)) == []
    # What was dropped in between is no stall's.
    assert list(watch.look(counted(2, 14_300, 90), 4 * S)) == []
    (said,) = watch.look(counted(2, 14_300, 91), 5 * S)
    assert "for 2.0 s: " in said
    assert said.endswith("dropped 2 datagrams meanwhile")


def test_short_stalls_of_a_busy_host_are_said_together_once_a_minute() -> None:
    watch = Stalls()
    said = [
        (at, sentence)
        for at in range(121)
        for sentence in watch.look(counted(at, at * 10 + 100, 0), at * S)
    ]
    assert [at for at, _ in said] == [2, 62]
    assert "for 0.1 s, 2 times together" in said[0][1]
    assert "for 0.6 s, 60 times together" in said[1][1]
