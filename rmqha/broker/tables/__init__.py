"""The tables of a broker that are saved, and that slaves get from their master."""
