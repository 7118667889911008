"""Whole brokers on a DLedger group, in the simulator."""
