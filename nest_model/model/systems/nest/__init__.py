"""The system NEST; its encoder is a module of its own, which loads torch."""
