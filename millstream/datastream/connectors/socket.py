"""Lines from a TCP connection (Flink's `socketTextStream`)."""

from millstream.connectors.socket import SocketTextSource

__all__ = ["SocketTextSource"]
