from typing import Self, final

__all__ = ["OrderFlow"]

@final
class OrderFlow:
    live: int
    messages: int
    stocks: int
    resting: int
    def __new__(cls, stocks: int, live: int, messages: int, seed: int = 1) -> Self: ...
    def decode(self) -> float: ...
    def floor(self) -> float: ...
    def market(self, orders: bool = True) -> float: ...
