"""Transactional messages: half messages, what ends them, and what asks producers about those that nobody ended."""
