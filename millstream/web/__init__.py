"""The dashboard: static files that `millstream.rest` serves and browsers run (docs/dashboard.md)."""
