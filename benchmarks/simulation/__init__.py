"""The paper's simulation study: does it pay to interleave the two encoders, all else being equal?"""
