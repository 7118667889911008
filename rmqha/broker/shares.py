"""Where :class:`Shares` was."""

from rmqha.shares import Shares

__all__ = ["Shares"]
