"""BERT, the control: NEST's rows in one flat piece per patient, after Devlin et al. 2019 with NEST's blocks."""

from nest_model.model.flat import FlatEncoder


class Bert(FlatEncoder):
    """A flat encoder in which all rows of a patient attend to each other."""

    system = "bert"


ENCODER = Bert
