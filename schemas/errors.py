"""Errors that a user can fix. Any other exception is a bug and may show its traceback."""


class NestError(Exception):
    """Base class; a message says what is wrong, where, how often and what to do, and never quotes a value of a row."""


class InputError(NestError):
    """An input table or file cannot be used as it is."""


class ContractError(NestError):
    """A table that one room made for another violates its contract."""


class WriteError(NestError):
    """A file or folder cannot be written; the earlier one is unchanged."""


class StoppedError(NestError):
    """A command was asked to stop before it had a result."""
