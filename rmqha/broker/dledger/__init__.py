"""A broker whose log is that of a DLedger group, master while it leads."""
