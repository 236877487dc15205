"""The dashboard: static files that `millstream.rest` serves and browsers run; nothing in here is Python (docs/dashboard.md)."""
