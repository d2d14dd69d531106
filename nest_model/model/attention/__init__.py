"""Attention within pieces of packed rows: plan once per batch, attend in every layer."""

from nest_model.model.attention.plan import AttentionPlan, plan_attention, plan_cross_attention

__all__ = ["AttentionPlan", "plan_attention", "plan_cross_attention"]
