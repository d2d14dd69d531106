"""The paper's Table 1, measured: six encoders with the same block, which differ in their attention core only."""
