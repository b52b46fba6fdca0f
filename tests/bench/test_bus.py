"""The benchmark of the bus copies what it says, and has a figure for each way."""

from bench import bench_bus
from bench.trials import Settings


def test_bus_rows_are_one_for_each_way() -> None:
    settings = Settings(quick=True, rounds=1, cores=(0, 0))  # a trial whose cores move is dropped
    rows = list(bench_bus.run(settings))
    assert {row.variant for row in rows} == {
        *("copy", "copy, with a key", "TCP alone"),
        *("sequencer", "sequencer, one a datagram", "restart"),
        *("sendmsg of the mapped file", "sendfile"),
        *bench_bus.READERS,
        *(f"{copies} copies" for copies in (0, 1, 4, 8)),
        *(f"send to seen, {where} host" for where in ("the writer's", "another")),
    }
    goals = {
        **bench_bus.COPY_GOALS,
        **bench_bus.ACK_GOALS,
        **bench_bus.APPEND_GOALS,
        **bench_bus.ORDER_GOALS,
        **bench_bus.RESTART_GOALS,
        **bench_bus.SEEN_GOALS,
    }
    assert set(goals) <= {row.variant for row in rows}
    assert all(row.values and min(row.values) > 0 for row in rows)
