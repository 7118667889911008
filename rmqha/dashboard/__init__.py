"""``rmqha dashboard``: a page in the browser that shows brokers, and changes nothing; needs the extra ``[web]``."""
