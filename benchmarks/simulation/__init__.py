"""The paper's simulation study: interleaved against sequential encoders, all else being equal."""
