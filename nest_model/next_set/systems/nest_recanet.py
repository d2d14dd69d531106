"""NEST + ReCANet: ReCANet on the product table and the user vector of a pretrained NEST."""

from nest_model.next_set.hybrid_system import NestReCANet


class NestAndReCANet(NestReCANet):
    title = "NEST + ReCANet"
    about = "ReCANet that reads NEST's frozen product table, and NEST's [CLS] of the query in place of a user's id."


SYSTEM = NestAndReCANet
