"""Pure decisions of replication: what to send, what an acknowledgement proves. ``now`` is an argument."""
