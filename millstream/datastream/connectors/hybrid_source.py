"""Sources one after the other (PyFlink's `connectors.hybrid_source`)."""

from millstream.connectors.hybrid_source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
