"""Next-set prediction: what the next basket holds, predicted by NEST from an appended query set and by counting."""
