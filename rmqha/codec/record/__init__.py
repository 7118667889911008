"""The record of the commitlog: its table of fields, and everything that walks, reads or makes records by it."""
