"""The leak audit: whether the models' input could reveal the outcome, by light models on counts, without test rows."""
