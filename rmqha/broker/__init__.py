"""The composition root of a broker, and what its request processors share."""
