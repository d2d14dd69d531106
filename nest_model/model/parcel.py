"""How a batch passes through the module that Fabric wraps."""

from typing import Any


class Parcel:
    """What goes into a module that Fabric wraps, or comes out of it, as it is.

    Fabric casts every float tensor it finds in a call, and positions in days must stay float64.
    """

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content
