"""Next-set prediction: what will the next basket hold? NEST asked by an appended query set, beside plain counting."""
