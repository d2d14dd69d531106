"""A made-up PCORnet CDM: children born 1999–2024, real codes, every trap at a set rate, outcomes to be learnt."""
