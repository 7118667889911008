"""A broker whose log is replicated by HAService, master or slave."""
