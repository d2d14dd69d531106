"""What each part of the recipe is worth: the recipe with one part taken away, over several seeds of the tasks."""
