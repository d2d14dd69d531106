"""What `python -m nest_model` does, a file for each command."""
