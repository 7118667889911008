"""The 4.x remoting protocol at the trio edge: server and client."""
