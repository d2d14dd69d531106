"""Turns events into a vocabulary and SeqSet shards, the same way for every source."""
