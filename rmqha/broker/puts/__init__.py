"""From a send that was understood to its answer: records, the log, and what an acknowledgement waits for."""
