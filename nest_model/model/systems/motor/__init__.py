"""The system MOTOR; its encoder is a module of its own, which loads torch."""
