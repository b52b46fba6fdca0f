"""Three hosts as processes, with `kill -9`, a stop and a promotion: each has every message once."""

from udpfast.cli.bus_demo import run_demo


def test_bus_demo_loses_nothing() -> None:
    said: list[str] = []
    found = run_demo(100, said.append)
    assert found["ok"], "\n".join(said)
    assert found["accepted"] == found["in the streams"] == 400
    assert found["twice"] == 0
    assert list(found["sha256"]["composite"]) == ["S", "one", "two", "replay"]
    assert found["reconnects"] > 0
