"""NYSE Pillar and XDP: orders of the integrated feed, statuses of the imbalance feed."""

__all__ = []
