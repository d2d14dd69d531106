"""Control: NEST + ReCANet with nothing of NEST."""

from nest_model.next_set.hybrid_system import NestControl


class Neither(NestControl):
    title = "NEST + ReCANet, neither"
    about = "A random frozen table and a user vector of zeros: nothing of NEST is left."
    items = "random"
    users = "none"
    learns_on_encoder = False  # it reads none


SYSTEM = Neither
