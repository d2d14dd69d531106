"""The hybrid's personal features without NEST: what the network adds is measured against this row."""

from nest_model.next_set.set_forms import HEAD_SEARCH, SetOptions
from nest_model.next_set.set_system import SetFineTuning


class NestFeatures(SetFineTuning):
    title = "Personal features alone"
    about = "The hybrid without NEST: popularity and an MLP of personal features for products bought before."
    form = "features"
    learns_on_encoder = False  # it reads none
    Options = SetOptions
    quick = {name: value for name, value in SetFineTuning.quick.items() if name in SetOptions.model_fields}
    search = HEAD_SEARCH
    is_control = True
    reads_backbone = False


SYSTEM = NestFeatures
