"""A wrapper that carries batches through the module that Fabric wraps."""

from typing import Any


class Parcel:
    """Carries an argument or result of a Fabric-wrapped module unchanged.

    Fabric casts every float tensor it finds in a call, but positions in days must stay float64.
    """

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content
