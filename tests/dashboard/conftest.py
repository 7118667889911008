"""Fixtures of the dashboard's tests."""

from tests.cli.fake_brokers import fake_brokers

__all__ = ["fake_brokers"]
