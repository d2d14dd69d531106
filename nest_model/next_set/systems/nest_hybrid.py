"""NEST fine-tuned on the next basket, with a term of personal features for products bought before."""

from nest_model.next_set.set_system import SetFineTuning


class NestHybrid(SetFineTuning):
    title = "NEST, set fine-tuned, personal features"
    about = "NEST fine-tuned on the next basket, with a term of personal features for products bought before."
    form = "hybrid"


SYSTEM = NestHybrid
