"""A deterministic simulator: the real trio code on a simulated disk, network and clock."""
