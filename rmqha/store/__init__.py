"""The files: commitlog, consume queues, checkpoint, and their recovery."""
