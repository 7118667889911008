"""Delayed messages: where each level stands, and when its messages go on."""
