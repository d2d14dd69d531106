"""Rules of events that sources share: the store, encounters, codes, clock, split."""
