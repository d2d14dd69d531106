"""Files from the net, when asked: aside until they are whole and what was promised; resumed, retried, refused."""
