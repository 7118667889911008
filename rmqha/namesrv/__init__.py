"""The name server: which brokers there are, and which topics each has. Of its own, or inside a broker for its group."""
