"""How good each model becomes with more patients: the product's own chain on synthetic MIMIC of growing size."""
