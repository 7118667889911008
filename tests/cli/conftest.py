"""Fixtures of the commands' tests."""

from tests.cli.fake_brokers import fake_brokers

__all__ = ["fake_brokers"]
