"""The tests mirror rmqha/; e2e, interop and faults start real processes."""
