"""Sources and sinks, one module each. Programs import them from `millstream.datastream.connectors`."""
