"""The paper's Table 1, measured: six encoders of one block, of which only the attention core differs."""
