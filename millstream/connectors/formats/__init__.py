"""Formats of records as text and bytes."""
