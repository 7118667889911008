"""Groups of DLedger servers in the simulator."""
