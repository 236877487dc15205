"""The dashboard: static files that `millstream.rest` serves and browsers run; no Python (docs/dashboard.md)."""
