"""Control: NEST + ReCANet with another user's vector."""

from nest_model.next_set.hybrid_system import NestControl


class OtherUser(NestControl):
    title = "NEST + ReCANet, another user"
    about = "NEST's product table, and the vector of another user."
    users = "other"


SYSTEM = OtherUser
