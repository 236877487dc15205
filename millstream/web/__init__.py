<<<<<<< HEAD
"""The dashboard: static files that `millstream.rest` serves and browsers run; no Python (docs/dashboard.md)."""
=======
"""The dashboard: static files that `millstream.rest` serves and browsers run (docs/dashboard.md)."""
>>>>>>> h-web
