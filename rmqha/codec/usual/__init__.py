"""Sends as a client usually writes them: learned from its bytes by the general code, and from then on looked up."""
