"""Pure conversions between bytes and values: no socket, no disk, no clock."""
