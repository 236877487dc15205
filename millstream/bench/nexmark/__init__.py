"""Nexmark: an auction house's people, auctions and bids, and questions about them.

The model, the generator, the oracles and the tally need nothing but Python, so that other systems run on the same
events and are held against the same results. The queries are DataStream programs, one module each.
"""
