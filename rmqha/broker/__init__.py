"""The composition root of a broker, one request processor a file."""
