"""Control: NEST + ReCANet with a random product table."""

from nest_model.next_set.hybrid_system import NestControl


class RandomTable(NestControl):
    title = "NEST + ReCANet, random table"
    about = "A random frozen table with the norms of NEST's rows, and NEST's user vector."
    items = "random"


SYSTEM = RandomTable
