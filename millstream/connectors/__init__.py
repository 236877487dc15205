"""Sources and sinks, one module each; programs import `millstream.datastream.connectors`."""
