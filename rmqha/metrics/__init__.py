"""The observability port: what a broker or a name server tells monitoring, over HTTP. Loaded when it is configured."""
