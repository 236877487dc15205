"""Benchmarks that come with Millstream, as `millstream bench`."""
