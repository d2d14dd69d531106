"""How files are written and read, whoever writes and reads them."""
