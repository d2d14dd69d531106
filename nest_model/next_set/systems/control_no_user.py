"""Control: NEST + ReCANet without a user vector."""

from nest_model.next_set.hybrid_system import NestControl


class NoUser(NestControl):
    title = "NEST + ReCANet, no user"
    about = "NEST's product table, and a user vector of zeros."
    users = "none"


SYSTEM = NoUser
