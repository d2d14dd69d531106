"""One module per system that recommends next baskets; each ends with SYSTEM, its class."""
