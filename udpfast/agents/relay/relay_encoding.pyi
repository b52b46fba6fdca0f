from udpfast.market.names import NameTable

__all__ = ["RelayEncoding"]

class RelayEncoding:
    def use_names(self, names: NameTable | None) -> None: ...
