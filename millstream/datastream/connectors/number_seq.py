"""A sequence of numbers (PyFlink's `connectors.number_seq`)."""

from millstream.connectors.number_seq import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
