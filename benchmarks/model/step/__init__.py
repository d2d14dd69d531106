"""The cost of a training step: padded against packed forms, and the shortcuts added one by one."""
