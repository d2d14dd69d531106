"""Pretraining and fine-tuning: tasks, recipes, the loop, and its saved states."""
