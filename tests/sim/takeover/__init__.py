"""What must survive a change of master beside the log: delayed messages, transactions, and the tables of a slave."""
