"""Rules for events that all sources share: the store, encounter linking, codes, clock and split."""
