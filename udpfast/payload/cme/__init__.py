"""CME MDP 3.0: levels by place, orders, trades, snapshots and definitions to changes."""

__all__: list[str] = []
