"""The attention cores of the flat models, a file to each.

A core attends as an `attention.AttentionPlan` does: query, key and value [rows, heads, d_head] → the same shape;
the rows are whole sequences of `sizes.length`, one after the other.
"""
