"""A synthetic Instacart: users with staples, habits and drift, in the layout of the Kaggle download."""

from pipelines.synthetic.instacart.write import write_instacart

__all__ = ["write_instacart"]
