"""The one family of faults a user can mend. Everything else is a bug and may show its traceback."""


class NestError(Exception):
    """What is wrong, where, how many, and what to do; never a value from a row."""


class InputError(NestError):
    """A table or file given to us cannot be used as it is."""


class ContractError(NestError):
    """A table one room made for another broke its contract."""


class WriteError(NestError):
    """A file or folder cannot be written; what stood there is untouched."""
