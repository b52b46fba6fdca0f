"""A feed to other hosts."""

__all__: list[str] = []
