"""Attention inside each piece of packed rows, behind one interface: plan once a batch, attend in every layer."""

from nest_model.model.attention.plan import AttentionPlan, plan_attention

__all__ = ["AttentionPlan", "plan_attention"]
