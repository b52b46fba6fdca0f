from typing import final

__all__ = ["LastValues"]

@final
class LastValues:
    def __init__(self, objects: int) -> None: ...
