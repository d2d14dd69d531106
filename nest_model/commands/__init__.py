"""The commands of `python -m nest_model`, one module each."""
