"""A machine that is always quiet: what the harness does must not depend on what else runs here."""

import pytest

import bench.runner


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Answer looks at the machine from a list of shares, then with 1 %; none takes time."""
    shares: list[float] = []

    def jitter(cores: tuple[int, ...], seconds: float) -> dict[str, object]:
        return {"lost_share": shares.pop(0) if shares else 0.01, "cores": []}

    monkeypatch.setattr(bench.runner, "jitter", jitter)
    return shares
