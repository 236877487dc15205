"""Durable state: storage, state files, manifests."""
