"""The dashboard: static files that `millstream.rest` serves and browsers run; none of it is Python (docs/dashboard.md)."""
