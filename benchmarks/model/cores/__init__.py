"""The attention cores of the flat models, one file for each.

A core's `attend` has the interface of `attention.AttentionPlan`: query, key and value [rows, heads, d_head] → the same
shape; the rows are complete sequences of `sizes.length`, one after the other.
"""
