"""Scores of predictions, with intervals and by subgroup; nothing here trains an encoder."""
