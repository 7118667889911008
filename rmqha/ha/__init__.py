"""Replication at the trio edge, by RocketMQ's names: HAService, HAConnection, HAClient, GroupTransferService."""
