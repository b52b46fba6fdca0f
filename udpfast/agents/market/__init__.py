"""Markets that are played: simulated ones, recorded ones, and their exchange."""

__all__: list[str] = []
