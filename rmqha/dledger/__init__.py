"""DLedger: a Raft log in files, in the format of RocketMQ's DLedger 0.3.1.2."""
