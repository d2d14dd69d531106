"""NEST fine-tuned to predict the next basket, with one softmax over all products."""

from nest_model.next_set.set_system import SetFineTuning


class NestGeneric(SetFineTuning):
    title = "NEST, set fine-tuned"
    about = "NEST fine-tuned to predict the next basket, with one softmax over all products."
    form = "generic"


SYSTEM = NestGeneric
