"""What a training step costs: the padded forms against packed ones, the product's switches added one by one."""
