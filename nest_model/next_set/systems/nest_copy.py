"""NEST fine-tuned on the next basket, with a term that copies products from the history."""

from nest_model.next_set.set_system import SetFineTuning


class NestCopy(SetFineTuning):
    title = "NEST, set fine-tuned, copying"
    about = "NEST fine-tuned on the next basket, with a term that copies products from the history."
    form = "copy"


SYSTEM = NestCopy
