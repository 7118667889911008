"""``python -m rmqha`` is ``rmqha``."""

from rmqha.cli.main import main

main()
